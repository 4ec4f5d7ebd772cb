"""Arguments that hold tensors by name, as `torch_geometric.data.Data`, a dict and what is of a dataclass do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch_geometric.data import Data

from pygfuse.compiler.refusal import Refused


class Absent:
    """What an object holds under a name that it lacks."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """What a capture is told of an object that is an argument.

    Attributes:
        kind: Its class.
        items: What it holds by name, as the compiler takes it, or `Absent`.
        read: The names that a capture has read, those that are not among the items included.
    """

    kind: type
    items: Mapping[str, Any]
    read: set[str] = dataclasses.field(default_factory=set)


class DataObject:
    """Stands for such an object while a module is captured.

    Args:
        name: The name of the argument.
        fields: What is known of it.
        symbols: What stands for its items.
    """

    def __init__(self, name: str, fields: Fields, symbols: Mapping[str, Any]) -> None:
        object.__setattr__(self, '_parts', (name, fields, symbols, {}))

    @property
    def __class__(self) -> type:
        # `isinstance` takes it for what it stands for
        return _parts(self)[1].kind

    def __contains__(self, key: str) -> bool:
        _check_names(self)
        return _found(self, key) is not Absent

    def __getitem__(self, key: str) -> Any:
        _check_names(self)
        found = _found(self, key)
        if found is Absent:
            raise KeyError(key)
        return found

    def get(self, key: str, default: Any = None) -> Any:
        _check_names(self)
        found = _found(self, key)
        return default if found is Absent else found

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        of, fields, _, _ = _parts(self)
        if fields.kind is dict:
            raise Refused(f'it calls {name} of {of}, a dict')
        if name == 'size' and issubclass(fields.kind, Data):
            count = _found(self, 'num_nodes')
            return lambda dim=None: (count, count) if dim is None else (count, count)[dim]
        found = _found(self, name)
        if found is Absent and not hasattr(fields.kind, name):
            raise AttributeError(name)
        # attributes of data, `edge_attr` among them, are None where it holds nothing
        return None if found is Absent else found

    def __setattr__(self, name: str, item: Any) -> None:
        of, fields, _, _ = _parts(self)
        if fields.kind is dict:
            raise Refused(f'it writes {name} of {of}, a dict')
        _parts(self)[-1][name] = item

    def __setitem__(self, key: str, item: Any) -> None:
        _check_names(self)
        of, _, _, stored = _parts(self)
        if type(key) is not str:
            raise Refused(f'it writes into {of} by something else than a name')
        stored[key] = item

    def _refuse(self, *_: Any) -> Any:
        raise Refused(f'it reads {_parts(self)[0]} as a whole')

    __bool__ = __len__ = __iter__ = __eq__ = __ne__ = __repr__ = __format__ = __delitem__ = __delattr__ = _refuse
    __call__ = _refuse
    __hash__ = object.__hash__


def stored_in(found: DataObject) -> dict[str, Any]:
    """What was stored in an object, by name."""
    return _parts(found)[-1]


def store(held: Any, name: str, item: Any) -> None:
    """Stores something in the object itself."""
    if isinstance(held, dict):
        held[name] = item
    else:
        setattr(held, name, item)


def _parts(found: DataObject) -> tuple[str, Fields, Mapping[str, Any], dict[str, Any]]:
    return object.__getattribute__(found, '_parts')


def _check_names(found: DataObject) -> None:
    """Raises a Refused if an object holds attributes alone."""
    name, fields, _, _ = _parts(found)
    if not issubclass(fields.kind, (dict, Data)):
        raise Refused(f'it reads {name}, a {fields.kind.__name__}, by names')


def _found(of: DataObject, key: Any) -> Any:
    """What an object holds under a name.

    Raises:
        Refused: If it is not among what the capture was told.
    """
    name, fields, symbols, stored = _parts(of)
    if type(key) is not str:
        raise Refused(f'it reads {name} by something else than a name')
    if key in stored:
        # data takes None for nothing
        return Absent if stored[key] is None and issubclass(fields.kind, Data) else stored[key]
    fields.read.add(key)
    if key not in fields.items:
        raise Refused(f'it reads {key} of {name}')
    return symbols.get(key, Absent)
