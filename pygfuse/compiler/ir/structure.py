"""Tuples, lists, dicts, slices and `Data` of anything, as functions take them and modules return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_geometric.data import Data


def is_structure(item: Any) -> bool:
    """Whether something is one of them, and of none of their subclasses but named tuples."""
    return type(item) in (tuple, list, dict, slice, Data) or _has_names(item)


def _has_names(item: Any) -> bool:
    return isinstance(item, tuple) and hasattr(type(item), '_fields')


def rebuilt(item: Any, function: Callable[[Any], Any]) -> Any:
    """A structure with what a function gives in place of its parts; of anything else, what it gives.

    Example:
        >>> rebuilt({'a': 1, 'b': [2, (3, 4)]}, lambda part: part + 1)
        {'a': 2, 'b': [3, (4, 5)]}
    """
    if not is_structure(item):
        return function(item)
    if type(item) is dict:
        return {key: rebuilt(part, function) for key, part in item.items()}
    if type(item) is Data:
        return Data.from_dict(rebuilt(item.to_dict(), function))
    if type(item) is slice:
        return slice(*[rebuilt(part, function) for part in (item.start, item.stop, item.step)])
    parts = [rebuilt(part, function) for part in item]
    return type(item)(*parts) if _has_names(item) else type(item)(parts)
