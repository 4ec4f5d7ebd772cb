"""Which of the arguments of a module are edges: what they hold, and their names say so."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

INDICES = torch.int64, torch.int32
# names that say what an argument is, where several may be the edges
_NAMES = 'edge_index', 'edges'
# parts of names of others
_PARTS_OF_NAMES = 'edge', 'index', 'adj', 'link'
# the same of edges by columns
_PARTS_OF_COLUMNS = *_PARTS_OF_NAMES, 'graph', 'bond', 'pair'
# of two arguments that are rows of indices
_NAMES_OF_ROWS = (
    ('idx_i', 'idx_j'), ('src', 'dst'), ('row', 'col'), ('senders', 'receivers'), ('edge_src', 'edge_dst'),
    ('source', 'target'), ('idx_kj', 'idx_ji'), ('idx_s', 'idx_t'), ('i', 'j'),
)  # fmt: skip


@functools.lru_cache(maxsize=512)
def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function, looked for once."""
    return inspect.signature(function)


def are_edges(item: Any) -> bool:
    """Whether something holds two indices for each edge."""
    if isinstance(item, Tensor):
        return item.dim() == 2 and item.shape[0] == 2 and item.dtype in INDICES and type(item) is Tensor
    if type(item) not in (tuple, list) or len(item) != 2 or any(type(row) is not Tensor for row in item):
        return False
    first, second = item
    return first.dim() == 1 and first.shape == second.shape and first.dtype == second.dtype and first.dtype in INDICES


def are_columns(item: Any) -> bool:
    """Whether something may hold the two ends of each edge by columns, ``[edges, 2]``."""
    is_table = type(item) is Tensor and item.dim() == 2 and item.shape[1] == 2 and item.shape[0] != 2
    return is_table and item.dtype in INDICES


def are_other_edges(name: str, item: Any) -> bool:
    """Whether a further argument is edges: what it holds, and its name say so.

    Example:
        >>> pairs = torch.zeros(2, 9, dtype=torch.int64)
        >>> are_other_edges('neg_edge_index', pairs), are_other_edges('labels', pairs)
        (True, False)
    """
    if not isinstance(item, Tensor) or not are_edges(item):
        return False
    name = name.rpartition('.')[2].lower()
    return any(part in name for part in _PARTS_OF_NAMES)


def names_of_edges(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The name of the argument that are the edges, or those of the two that are their rows; empty if there is none."""
    found = [name for name, item in arguments.items() if are_edges(item)]
    if found:
        return (next((name for name in found if name.rpartition('.')[2] in _NAMES), found[0]),)
    rows = [name for name, item in arguments.items() if type(item) is Tensor and item.dim() == 1]
    pairs = [pair for pair in itertools.combinations(rows, 2) if are_edges([arguments[name] for name in pair])]
    named = [pair for pair in _NAMES_OF_ROWS if are_edges([arguments.get(name) for name in pair])]
    columns = [name for name, item in arguments.items() if are_columns(item) and _says_columns(name)]
    if not named and len(columns) == 1:
        return (columns[0],)
    # of more than two indices of as many numbers any two may be
    return named[0] if named else pairs[0] if len(pairs) == 1 else ()


def _says_columns(name: str) -> bool:
    name = name.rpartition('.')[2].lower()
    return any(part in name for part in _PARTS_OF_COLUMNS)


def are_said(names: tuple[str, ...]) -> bool:
    """Whether names say that arguments are edges, or their rows; any two indices of as many numbers may be something
    else, as a batch of users and of items.

    Example:
        >>> are_said(('edge_index',)), are_said(('row', 'col')), are_said(('users', 'items')), are_said(())
        (True, True, False, False)
    """
    return len(names) == 1 or names in _NAMES_OF_ROWS


def names_of(forward: Any) -> tuple[str, ...]:
    """The names of what a ``forward`` takes."""
    return tuple(signature_of(forward).parameters)[1:]


def takes_edges(forward: Any) -> bool:
    """Whether the names of what a ``forward`` takes say that there are edges among them.

    Example:
        >>> takes_edges(lambda self, x, pos_edge_index: x), takes_edges(lambda self, x, edge_weight: x)
        (True, False)
    """
    names = {*names_of(forward)}
    are_named = any(name in _NAMES or name.endswith(_NAMES[0]) for name in names)
    return are_named or any(names.issuperset(pair) for pair in _NAMES_OF_ROWS)
