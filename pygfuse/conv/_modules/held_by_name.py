"""Arguments of modules that hold tensors by name: which of these a call is said to bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from pygfuse.compiler import Refused
from pygfuse.compiler.modules.data_objects import Absent, Fields
from pygfuse.conv._compiled.call import SIMPLE
from pygfuse.conv._modules.matrix_arguments import is_matrix, opened_matrix


class Names(NamedTuple):
    """The names that a module may read of an object.

    Attributes:
        names: The names.
        are_read: Whether a capture has read them all, and not only met them.
    """

    names: frozenset[str]
    are_read: bool


# what may be read of objects, by the names of arguments; of one without an entry all that it holds
Read = Mapping[str, Names]
NOTHING_READ: Read = MappingProxyType({})
# classes whose subclasses hold something else than attributes
_VALUES = dict, list, tuple, set, str, int, float, ModuleType
# how attributes are read that are what an object holds
_READ_AS_THEY_ARE = object.__getattribute__, SimpleNamespace.__getattribute__
# what data computes of all that it holds
_COUNTS = 'num_nodes', 'num_graphs'


def holds_by_name(item: Any) -> bool:
    """Whether an argument is data of PyG's, a dict, or an object with attributes of its own."""
    return isinstance(item, Data) or type(item) is dict or _has_attributes(item)


def held_in(item: Any) -> Any:
    """What such an argument holds, by name."""
    if not _has_attributes(item):
        return item
    fields = dataclasses.fields(item) if dataclasses.is_dataclass(item) else ()
    # those of a dataclass may be in slots
    in_slots = {one.name: getattr(item, one.name) for one in fields if hasattr(item, one.name)}
    return {**in_slots, **getattr(item, '__dict__', {})}


def _has_attributes(item: Any) -> bool:
    """Whether an argument is an object with attributes that are what it holds, and nothing that is computed."""
    kind = type(item)
    is_plain = not hasattr(kind, '__getattr__') and kind.__getattribute__ in _READ_AS_THEY_ARE
    is_other = isinstance(item, (Tensor, Module, Enum, *_VALUES)) or callable(item)
    return is_plain and not is_other and (hasattr(item, '__dict__') or dataclasses.is_dataclass(kind))


def opened(name: str, item: Any, read: Read, held: dict[str, Any]) -> Any:
    """An argument, or `Fields` in place of objects in it.

    Args:
        name: Its name.
        item: The argument.
        read: What may be read of objects.
        held: To which objects are added, by name.

    Raises:
        Refused: If something is read of an object that has no fused form.
    """
    if type(item) in (tuple, list):
        parts = [opened(f'{name}.{place}', one, read, held) for place, one in enumerate(item)]
        return type(item)(parts) if any(type(part) is Fields for part in parts) else item
    if is_matrix(item):
        held[name] = item
        return opened_matrix(name, item)
    if not holds_by_name(item):
        return item
    held[name] = item
    items = held_in(item)
    if name not in read:
        return Fields(type(item), dict(_simple(items)))
    return Fields(type(item), {key: _read(item, items, name, key) for key in sorted(read[name].names)})


def read_by(objects: Mapping[str, Fields], known: Read) -> Read:
    """What may be read of objects after a capture, which may have missed some names.

    Args:
        objects: What the capture was told of them.
        known: What could be read before.
    """
    if not any(fields.read for fields in objects.values()):
        return known
    return {**known, **{name: _names_read(fields, known.get(name)) for name, fields in objects.items()}}


def _names_read(fields: Fields, known: Names | None) -> Names:
    if known is not None and known.are_read:
        return Names(known.names | fields.read, True)
    has_missed = not fields.read <= fields.items.keys()
    return Names(frozenset(fields.read.union(fields.items if has_missed else ())), not has_missed)


def _simple(items: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, but for what no module is compiled with."""
    for key in items.keys():  # noqa: SIM118  data goes through pairs
        found = items[key]
        # a matrix may have no fused form, and nobody may read it
        if type(key) is str and (type(found) in SIMPLE or type(found) is Tensor) and not is_matrix(found):
            yield key, found


def _read(item: Any, items: Any, name: str, key: str) -> Any:
    """What is read of an object, which holds these items, by a name."""
    if key in items:
        return items[key]
    if isinstance(item, dict):
        return Absent
    if key in _COUNTS and hasattr(item, key):
        return getattr(item, key)
    # attributes of data that are None where it holds nothing
    if getattr(item, key, None) is not None:
        raise Refused(f'it reads {key} of {name}')
    return Absent
