"""A layer's settings, as a dict or a namespace holds them: what is read of these is remembered."""

from __future__ import annotations

import argparse
import types
from typing import Any

from pygfuse.compiler.capture.surroundings import is_constant, watched_value
from pygfuse.compiler.refusal import Refused

# classes of what holds settings by name
HELD = (dict, argparse.Namespace, types.SimpleNamespace)


class Settings:
    """Stands for a dict, or a namespace, of a layer.

    Args:
        name: Its name.
        held: The dict or the namespace.
        guards: What remembers what is read, a `pygfuse.compiler.capture.watch.Guards`.
    """

    def __init__(self, name: str, held: Any, guards: Any) -> None:
        object.__setattr__(self, '_parts', (name, held, guards))

    @property
    def __class__(self) -> type:
        # `isinstance` takes it for what holds them
        return type(object.__getattribute__(self, '_parts')[1])

    def __getitem__(self, key: Any) -> Any:
        name, held, guards = object.__getattribute__(self, '_parts')
        # a class of its own may give something else
        if not isinstance(held, dict) or type(key) is not str or key not in held:
            raise Refused(f'it reads the dict {name} of the layer')
        found = held[key]
        if dict.get(held, key) is not found:
            raise Refused(f'it reads the dict {name} of the layer')
        return self._read(guards.namespace(held), key, found)

    def get(self, key: Any, default: Any = None) -> Any:
        held = object.__getattribute__(self, '_parts')[1]
        return self[key] if getattr(type(held), 'get', None) is dict.get else self._refuse()

    def __getattr__(self, name: str) -> Any:
        of, held, _ = object.__getattribute__(self, '_parts')
        if name.startswith('__') or type(held) is dict:
            raise AttributeError(name)
        if not hasattr(held, name):
            raise Refused(f'it reads {name} of {of}, which is not there')
        return self._read(held, name, getattr(held, name))

    def __setattr__(self, name: str, found: Any) -> None:
        raise Refused(f'it writes into {object.__getattribute__(self, "_parts")[0]} of the layer')

    __setitem__ = __delitem__ = __setattr__

    def _refuse(self, *_: Any) -> Any:
        raise Refused(f'it reads the dict {object.__getattribute__(self, "_parts")[0]} of the layer')

    # what else would tell of it without being remembered
    __bool__ = __len__ = __iter__ = __contains__ = __eq__ = __ne__ = __repr__ = __format__ = _refuse
    __hash__ = None

    def _read(self, owner: Any, key: str, found: Any) -> Any:
        name, _, guards = object.__getattribute__(self, '_parts')
        if isinstance(found, HELD):
            guards.add(owner, key, found)
            return Settings(f'{name}.{key}', found, guards)
        if not is_constant(found) and not callable(found):
            raise Refused(f'it reads {key} of {name}, a {type(found).__name__}')
        guards.add(owner, key, found)
        return watched_value(key, found, guards)
