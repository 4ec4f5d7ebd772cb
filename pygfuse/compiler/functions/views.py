"""How views of values of edges or nodes are recorded: known by the shape of a row."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.functions.piles import Pile
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, rewritten, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.beside_edges import as_given
from pygfuse.compiler.symbols.edge_tensors import REMAKING
from pygfuse.compiler.symbols.numbers_of_rows import (
    NUM_EDGES,
    NUM_OTHERS,
    NUMBERS_OF_ROWS,
    OF_NODES,
    WITH_NUMBERS,
    kind_of,
)
from pygfuse.compiler.symbols.places import OTHER_ENDS, EdgeColumns, EdgeIndexRows, Place, is_all
from pygfuse.compiler.symbols.symbol import HANDLERS, Symbol, handler, made, recorded
from pygfuse.compiler.symbols.turned import Turned, as_turned, swapped, turned

_INTEGERS = (torch.int64, torch.int32)


def inner_dim(x: Symbol, dim: int) -> int:
    """A dimension that is not the one of rows; of stacked values the last."""
    if x.is_stacked and dim == -1 and len(x.node.shape) == 1:
        return 1
    if not isinstance(dim, int) or not -x.dim() <= dim < x.dim() or dim % x.dim() == 0:
        raise Refused('an operator over the dimension of edges')
    return dim % x.dim()


def _moved(op: str, x: Symbol, function: Callable, *args: Any, **kwargs: Any) -> Symbol | Turned:
    """Records a view that leaves the rows where they are, or behind new dimensions, by its effect on the shape."""
    example = _example(x)
    try:
        out = function(example, *args, **kwargs)
    except (RuntimeError, IndexError, TypeError) as error:
        raise Refused(f'{function.__name__}: {error}') from error
    at = next((k for k, size in enumerate(out.shape) if size != 1), 0)
    if not out.dim() or out.shape[at] != x.rows or (at > 0 and (op != 'reshape' or _has_copies())):
        raise Refused(f'{function.__name__} moves the dimension of edges')
    if not NUMBERS_OF_ROWS.isdisjoint((*out.shape[:at], *out.shape[at + 1 :])):
        raise Refused(WITH_NUMBERS)
    if at == 0:
        return made(op, x, shape=tuple(out.shape[1:]))
    # recorded, as its memory is that of the value
    return as_turned(recorded(Tensor.reshape, (x, (-1, *out.shape[:at], *out.shape[at + 1 :]))), at)


def _has_copies() -> bool:
    """Whether dimensions before that of rows are those of copies of the nodes."""
    remaking = REMAKING.get()
    return remaking is not None and bool(remaking.copies)


def _example(x: Symbol) -> Tensor:
    return torch.empty((x.rows, *x.node.shape), dtype=x.dtype, device='meta')


def _plain(arguments: Any) -> Any:
    """Arguments of a view: sizes as plain numbers, and shapes of other symbols."""
    if isinstance(arguments, (tuple, list)):
        return tuple(_plain(a) for a in arguments)
    if isinstance(arguments, Symbol):
        raise Refused('a view by values')
    return kind_of(arguments) if isinstance(arguments, int) and not isinstance(arguments, bool) else arguments


def _reshaping(function: Callable) -> Callable:
    def record(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
        return _moved('reshape', x, function, *_plain(args), **{name: _plain(size) for name, size in kwargs.items()})

    return record


for _name in ('reshape', 'unsqueeze', 'squeeze', 'flatten', 'unflatten'):
    HANDLERS[_name] = _reshaping(getattr(Tensor, _name))
HANDLERS['view'] = HANDLERS['reshape']


@handler('expand')
def _expand(x: Symbol, *sizes: Any) -> Symbol:
    return _moved('expand', x, Tensor.expand, *_plain(sizes))


@handler('expand_as')
def _expand_as(x: Symbol, other: Symbol) -> Symbol:
    return _moved('expand', x, Tensor.expand, _plain(other.shape))


@handler('view_as', 'reshape_as')
def _view_as(x: Symbol, other: Symbol) -> Symbol:
    return _moved('reshape', x, Tensor.reshape, _plain(other.shape))


@handler('permute')
def _permute(x: Symbol, *dims: Any) -> Symbol | Turned:
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    dims = tuple(int(d) % x.dim() for d in dims)
    return made('permute', x, dims=dims) if dims[0] == 0 else turned(x, dims)


@handler('transpose', 'swapaxes')
def _transpose(x: Symbol, first: int, second: int) -> Symbol | Turned:
    return _permute(x, swapped(x.dim(), first, second))


@handler('t')
def _t(x: Symbol) -> Symbol | Turned:
    if x.dim() > 2:
        raise Refused('t of more than two dimensions')
    return x if x.dim() == 1 else _transpose(x, 0, 1)


@handler('repeat')
def _repeat(x: Symbol, *repeats: Any) -> Symbol:
    repeats = repeats[0] if len(repeats) == 1 and not isinstance(repeats[0], int) else repeats
    if len(repeats) != x.dim() or repeats[0] != 1:
        raise Refused('repeat over edges')
    return made('repeat', x, repeats=tuple(repeats[1:]))


@handler('getitem')
def _getitem(x: Symbol, key: Any) -> Symbol:
    if isinstance(key, tuple) and key and key[0] is Ellipsis and sum(one is not None for one in key) == x.dim() + 1:
        # it stands for no dimension
        key = key[1:]
    if _is_of_rows_and_within(x, key):
        rows, rest = _index_select(x, 0, key[0]), (slice(None), *key[1:])
        return rows if all(map(is_all, rest)) else _getitem(rows, rest)
    if isinstance(key, Place):
        return _index_select(x, 0, key)
    if isinstance(key, EdgeIndexRows):
        return Pile(tuple([_index_select(x, 0, end) for end in key]), is_of_one=True)
    if isinstance(key, EdgeColumns):
        return recorded(torch.stack, (tuple([_index_select(x, 0, end) for end in key.rows]), 1))
    if _is_lookup(x, key):
        return _lookup(x, key, True)
    if _is_of_edges(x, key):
        return _of_other_edges(x, key, True)
    key = key if isinstance(key, tuple) else (key,)
    if not all(map(_is_plain, key)):
        raise Refused('an index by values')
    if key[0] is None and not _has_copies():
        view = recorded(torch.unsqueeze, (x, 0))
        return view[key[1:]] if len(key) > 1 else view
    if key[0] is Ellipsis:
        filled = x.dim() - sum(place is not None and place is not Ellipsis for place in key)
        key = (*[slice(None)] * filled, *key[1:])
    if not is_all(key[0]):
        raise Refused('an index over edges')
    return made('index', x, places=tuple(key[1:])) if len(key) > 1 else x


def _is_of_rows_and_within(x: Symbol, key: Any) -> bool:
    """Whether a key is the end of each edge, and a view of what is in the rows."""
    if not (isinstance(key, tuple) and key and isinstance(key[0], Place) and all(map(_is_plain, key[1:]))):
        return False
    return sum(place is not None and place is not Ellipsis for place in key[1:]) < x.dim()


def _is_plain(place: Any) -> bool:
    """Whether a part of a key is one of a view."""
    return place is None or place is Ellipsis or (isinstance(place, (int, slice)) and not isinstance(place, bool))


@handler('narrow')
def _narrow(x: Symbol, dim: int, start: int, length: int) -> Symbol:
    start = start if start >= 0 else start + x.shape[inner_dim(x, dim)]
    return _between(x, dim, start, start + length)


@handler('select')
def _select(x: Symbol, dim: int, index: int) -> Symbol:
    dim = inner_dim(x, dim)
    return made('index', x, places=(*[slice(None)] * (dim - 1), index))


def _between(x: Symbol, dim: int, start: int, end: int) -> Symbol:
    dim = inner_dim(x, dim)
    return made('index', x, places=(*[slice(None)] * (dim - 1), slice(start, end)))


@handler('split')
def _split(x: Symbol, sizes: Any, dim: int = 0) -> tuple[Symbol, ...]:
    dim = inner_dim(x, dim)
    total = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return tuple(_between(x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True))


@handler('chunk')
def _chunk(x: Symbol, chunks: int, dim: int = 0) -> tuple[Symbol, ...]:
    dim = inner_dim(x, dim)
    return _split(x, -(-x.shape[dim] // chunks), dim)


@handler('unbind')
def _unbind(x: Symbol, dim: int = 0) -> tuple[Symbol, ...]:
    return tuple(_select(x, dim, k) for k in range(x.shape[inner_dim(x, dim)]))


@handler('index_select')
def _index_select(x: Symbol, dim: int, index: Any) -> Symbol:
    if _is_lookup(x, index) and dim in (0, -x.dim()):
        return _lookup(x, index, False)
    if _is_of_edges(x, index) and dim in (0, -x.dim()):
        return _of_other_edges(x, index, False)
    are_of_nodes = x.node.residency in (SOURCE, TARGET) and x.rows in (*OF_NODES, NUM_OTHERS)
    if not isinstance(index, Place) or index.inner or not are_of_nodes or dim not in (0, -x.dim()):
        raise Refused('an index by values')
    if x.rows not in (index.rows, NUM_OTHERS):
        raise Refused(OTHER_ENDS)
    if x.rows == NUM_OTHERS and not index.is_target:
        raise Refused('an index by values')
    node = rewritten(x.node, _of_targets) if x.rows == NUM_OTHERS else x.node
    if index.is_target and node.op == 'reduce' and 'ends_early' in node.attributes:
        # rows behind that of the last target are not read
        node = dataclasses.replace(node, attributes={k: v for k, v in node.attributes.items() if k != 'ends_early'})
    end = TARGET if index.is_target else SOURCE
    # rows that nobody else has
    return Symbol(_at_end(node, end, index), NUM_EDGES, is_copy=True)


def _of_targets(node: Node) -> Node | None:
    """A reduction to a number of rows as one to the targets, of which those that have edges are read."""
    if node.op != 'resized':
        return None
    reduction, size = node.args
    return dataclasses.replace(reduction, attributes={**reduction.attributes, 'rows': size})


def _is_lookup(table: Any, rows: Any) -> bool:
    """Whether rows of a shared table are read, one for each edge or node."""
    are_numbers = isinstance(rows, Symbol) and rows.node.shape == () and rows.dtype in _INTEGERS
    return are_numbers and isinstance(table, Symbol) and table.rows is None


def _is_of_edges(x: Symbol, rows: Any) -> bool:
    """Whether values of edges are read by numbers of edges, one for each edge."""
    are_numbers = isinstance(rows, Symbol) and rows.node.shape == () and rows.dtype in _INTEGERS
    return are_numbers and x.rows == rows.rows == NUM_EDGES


def _of_other_edges(x: Symbol, numbers: Symbol, counts_back: bool) -> Symbol:
    """Values of edges, for each edge those of another one."""
    remaking = REMAKING.get()
    of_several = remaking is not None and remaking.reads_several
    if numbers.node.residency != EDGE or of_several:
        raise Refused('values by numbers of nodes, or of several sets of edges')
    if x.node.residency != EDGE:
        # what nodes decide has a row for each edge
        x = Symbol(value('on_edges', x.node), x.rows)
    if remaking is not None and numbers.node.op != 'input':
        numbers = as_given(numbers)
    found = made('of_other_edges', x, numbers, counts_back=counts_back)
    found.is_copy = True
    return found


def _lookup(table: Symbol, rows: Symbol, counts_back: bool) -> Symbol:
    """The rows of a table; numbers that a module computes of such of its edges are computed before all else."""
    if REMAKING.get() is not None and rows.rows == NUM_EDGES and rows.node.op != 'input':
        with contextlib.suppress(Refused):
            rows = as_given(rows)
    return made('lookup', table, rows, counts_back=counts_back)


@handler('embedding')
def _embedding(rows: Symbol, table: Symbol, padding_idx: int | None = None, max_norm: float | None = None,
               norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Symbol:  # fmt: skip
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq or sparse or not _is_lookup(table, rows):
        raise Refused('an embedding with these arguments')
    return _lookup(table, rows, False)


def _at_end(node: Node, end: str, index: Place) -> Node:
    """A value of nodes as one of an end of the edges, where sources and targets are the same nodes.

    It is computed once, for all nodes, as it is written: not for those with edges alone, and not for each end.
    """
    if node.residency == SHARED or (node.op == 'input' and not index.gathers_apart):
        return node if end == node.residency else dataclasses.replace(node, residency=end)
    return value(f'of_{end}s', node, **index.along)
