"""A layer's settings, as a dict or a namespace holds them: what is read of these is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from pygfuse.compiler.capture.namespaces import holds_settings
from pygfuse.compiler.capture.surroundings import is_constant, watched_value
from pygfuse.compiler.refusal import Refused

# what tells of the keys of a dict
_OF_KEYS = '__iter__', '__len__', '__contains__', 'keys', 'items', 'values'


class Settings:
    """Stands for a dict, or a namespace, that code reads.

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
        _, held, guards = object.__getattribute__(self, '_parts')
        # a class of its own may give something else
        if not isinstance(held, dict) or type(key) is not str or key not in held:
            self._refuse()
        found = held[key]
        if dict.get(held, key) is not found:
            self._refuse()
        return self._read(guards.namespace(held), key, found)

    def __getattr__(self, name: str) -> Any:
        _, held, guards = object.__getattribute__(self, '_parts')
        if name.startswith('__') or type(held) is dict:
            raise AttributeError(name)
        if not hasattr(held, name):
            guards.absent.append((held, name))
            raise AttributeError(name)
        return self._read(held, name, getattr(held, name))

    def __setattr__(self, name: str, found: Any) -> None:
        raise Refused(f'it writes into {object.__getattribute__(self, "_parts")[0]}')

    __setitem__ = __delitem__ = __setattr__

    # what tells of the keys

    def __contains__(self, key: Any) -> bool:
        return key in self._names()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def keys(self) -> tuple:
        return self._names()

    def values(self) -> tuple:
        return tuple([self[key] for key in self._names()])

    def items(self) -> tuple:
        return tuple([(key, self[key]) for key in self._names()])

    def get(self, key: Any, default: Any = None) -> Any:
        if getattr(type(object.__getattribute__(self, '_parts')[1]), 'get', None) is not dict.get:
            self._refuse()
        return self[key] if key in self._names() else default

    def _names(self) -> tuple:
        """The keys, which are remembered."""
        _, held, guards = object.__getattribute__(self, '_parts')
        kind = OrderedDict if isinstance(held, OrderedDict) else dict
        is_plain = isinstance(held, dict) and all(getattr(type(held), name) is getattr(kind, name) for name in _OF_KEYS)
        if not is_plain or not all(map(is_constant, held)):
            self._refuse()
        keys = guards.keys(held)
        guards.add(keys, 'names', keys.names)
        return keys.names

    def _refuse(self, *_: Any) -> Any:
        raise Refused(f'it reads {object.__getattribute__(self, "_parts")[0]}, a dict, as a whole')

    # what else would tell of it without being remembered
    __eq__ = __ne__ = __repr__ = __format__ = _refuse
    __hash__ = None

    def _read(self, owner: Any, key: str, found: Any) -> Any:
        name, _, guards = object.__getattribute__(self, '_parts')
        guards.add(owner, key, found)
        if holds_settings(found):
            return Settings(f'{name}.{key}', found, guards)
        if isinstance(found, list) and is_constant(tuple(found)):
            return Unwritten(key, found, name)
        if not is_constant(found) and not callable(found):
            raise Refused(f'it reads {key} of {name}, a {type(found).__name__}')
        return watched_value(key, found, guards)


class Unwritten(list):
    """A copy of a list that a layer or its caller holds: what is written there is seen elsewhere."""

    stands_for = list

    def __init__(self, name: str, found: list, owner: str = 'the layer') -> None:
        super().__init__(found)
        self._name, self._owner = name, owner

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Refused(f'it writes into {self._name}, a list of {self._owner}')

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
