"""Tensors with a row for each node or edge that are filled with one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pygfuse.compiler.ir.values import SOURCE, TARGET, Node
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.copies import Copies
from pygfuse.compiler.symbols.edge_tensors import REMAKING
from pygfuse.compiler.symbols.handler_names import BY_ROWS
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_SOURCES, NUM_TARGETS, OF_NODES, Rows
from pygfuse.compiler.symbols.one_copy import sizes_in
from pygfuse.compiler.symbols.places import AFTER_LAST_TARGET, Place
from pygfuse.compiler.symbols.symbol import Symbol, handler, recorded
from pygfuse.compiler.symbols.turned import Turned, as_turned

_NUMBERS = {'zeros': 0.0, 'ones': 1.0}


def filled(shape: Any, number: float, dtype: torch.dtype | None = None) -> Symbol | Copies | Turned:
    """A tensor of one number.

    Args:
        shape: Its shape, with a number of edges or nodes, or `AFTER_LAST_TARGET` before all others.
        number: The number.
        dtype: The type; default: that by default.

    Raises:
        Refused: If it has no row for each node or edge, or is of no floating type.
    """
    shape, sizes = tuple(shape), REMAKING.get().copies if REMAKING.get() is not None else ()
    if sizes and [type(size) for size in shape[: len(sizes)]] == [int] * len(sizes) and shape[: len(sizes)] == sizes:
        return Copies(filled(shape[len(sizes) :], number, dtype), sizes)
    at = next((k for k, size in enumerate(shape) if isinstance(size, Rows)), 0)
    if at > 0 and shape[0] is not AFTER_LAST_TARGET:
        return as_turned(filled((shape[at], *shape[:at], *shape[at + 1 :]), number, dtype), at)
    rows, *inner = shape
    ends = {'ends_early': True} if rows is AFTER_LAST_TARGET else {}
    rows = Rows(NUM_TARGETS) if ends else rows
    dtype = torch.get_default_dtype() if dtype is None else dtype
    is_known = isinstance(rows, Rows) and rows.kind in (NUM_EDGES, *OF_NODES)
    if not is_known or any(isinstance(size, Rows) for size in inner):
        raise Refused('a tensor whose shape is no row for each node or edge')
    if not dtype.is_floating_point or type(number) not in (int, float):
        raise Refused('a tensor that is filled with something else than a floating number')
    # what edges have of it are the rows of their targets
    side = SOURCE if rows.kind == NUM_SOURCES else TARGET
    # which edges they are as many as, where a module makes these anew
    counted = {} if rows.counts is None else {'counts': rows.counts}
    node = Node('filled', (), {'number': float(number), **counted, **ends}, side, tuple(map(int, inner)), dtype)
    found = Symbol(node, rows.kind)
    found.constant = float(number)
    return found


def is_made_of_rows(function: Callable, args: Any) -> bool:
    """Whether a function of torch makes a tensor with a row for each edge or node of nothing but their number."""
    if function in _LIKE:
        return bool(args) and isinstance(args[0], Place)
    sizes = args[0] if args and isinstance(args[0], (tuple, list)) else args
    return function in _MADE and any(isinstance(size, Rows) or size is AFTER_LAST_TARGET for size in sizes)


def made_of_rows(function: Callable, args: Any, dtype: Any = None, device: Any = None, **others: Any) -> Symbol:
    """What such a function makes."""
    if others:
        raise Refused(f'{function.__name__} with {", ".join(others)}')
    if function is torch.full:
        return filled(*args, dtype)
    if function in _LIKE:
        return filled(args[0].shape, _LIKE[function], torch.int64 if dtype is None else dtype)
    sizes = args[0] if isinstance(args[0], (tuple, list)) else args
    return filled(sizes, _NUMBERS[function.__name__], dtype)


_MADE = torch.zeros, torch.ones, torch.full
_LIKE = {torch.zeros_like: 0.0, torch.ones_like: 1.0}


def _new(number: float) -> Callable:
    def record(x: Symbol, *sizes: Any, dtype: Any = None, device: Any = None) -> Symbol:
        return filled(sizes_in(sizes), number, x.dtype if dtype is None else dtype)

    return record


handler('new_zeros')(_new(0.0))
handler('new_ones')(_new(1.0))


@handler('new_full')
def _new_full(x: Symbol, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Symbol:
    return filled(size, fill_value, x.dtype if dtype is None else dtype)


@handler(BY_ROWS)
def _spread(name: str, x: Symbol, *sizes: Any) -> Symbol | Turned:
    """A shared value for each edge or node: repeated along a dimension of size 1, or a new one."""
    sizes = sizes_in(sizes)
    at = next((k for k, size in enumerate(sizes) if isinstance(size, Rows)), None)
    if name not in ('expand', 'repeat') or not isinstance(x, Symbol) or at is None:
        raise Refused('a shape of shared values depends on the number of edges')
    rest = recorded(getattr(torch.Tensor, name), (x, (*sizes[:at], 1, *sizes[at + 1 :])))
    if rest.shape[at] != 1:
        raise Refused('a shape of shared values depends on the number of edges')
    return recorded(torch.add, (filled((*rest.shape[:at], sizes[at], *rest.shape[at + 1 :]), 0.0, x.dtype), rest))
