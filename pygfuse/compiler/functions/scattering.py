"""Torch's own reductions of edges into rows of nodes: ``index_add``, ``scatter_add`` and ``scatter_reduce``."""

from __future__ import annotations

import math
from typing import Any

from pygfuse.compiler.functions.filled import filled
from pygfuse.compiler.functions.leaves import degree, scatter
from pygfuse.compiler.ir.values import value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, OF_NODES, Rows
from pygfuse.compiler.symbols.places import AFTER_LAST_TARGET, OTHER_ENDS, Place
from pygfuse.compiler.symbols.symbol import Symbol, handler, made

_REDUCTIONS = {'mean': 'mean', 'amax': 'max', 'amin': 'min'}
_EXTREMES = {'amax': 'maximum', 'amin': 'minimum'}
NO_ROW_OF_EDGES = 'a reduction of something that is no row for each edge into rows of nodes'


@handler('index_add')
def _index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Symbol:
    _check(x, dim, index, source)
    if index.inner:
        raise Refused('an index of several dimensions')
    added = scatter(source, index, 0, _rows_of(x, index))
    return _onto(x, added if alpha == 1 else made('mul', added, alpha))


@handler('scatter_add')
def _scatter_add(x: Any, dim: int, index: Any, src: Any) -> Symbol:
    _check(x, dim, index, src)
    return _onto(x, scatter(src, _of_whole_rows(index, src), 0, _rows_of(x, index)))


@handler('scatter_reduce')
def _scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Symbol:
    if reduce == 'sum':
        return _scatter_add(x, dim, index, src)
    if reduce == 'mean' and include_self:
        # what was there is one more of those that are averaged
        return made('div', _scatter_add(x, dim, index, src), made('add', _count(_of_whole_rows(index, src), src), 1.0))
    _check(x, dim, index, src)
    if reduce not in _REDUCTIONS or x.constant is None or (include_self and reduce not in _EXTREMES):
        raise Refused(f'the reduction {reduce!r} of edges and of what was there before')
    return _onto_constant(x, _of_whole_rows(index, src), src, reduce, include_self)


def _onto_constant(x: Symbol, index: Place, src: Symbol, reduce: str, include_self: bool = False) -> Symbol:
    """A reduction of edges to nodes, of which one without edges keeps the number that was there."""
    found = scatter(src, index, 0, _rows_of(x, index), _REDUCTIONS[reduce])
    if include_self:
        found = made(_EXTREMES[reduce], found, x)
    if not include_self and x.constant == 0.0:
        return found
    return made('where', made('gt', _count(index, src), 0.5), found, x)


def _count(index: Place, src: Symbol) -> Symbol:
    """How many edges each node has, to be combined with rows like theirs."""
    return made('reshape', degree(index, Rows(index.rows), src.dtype), shape=(1,) * len(src.node.shape))


def largest_of_all(x: Symbol) -> Symbol:
    """The largest number of all edges, which scores are moved by before a softmax that is written out.

    Raises:
        Refused: If it is something else than that.
    """
    if x.rows != NUM_EDGES or x.is_stacked or not x.dtype.is_floating_point:
        raise Refused('a maximum over something else than all edges')
    targets = Place(True)
    lowest = filled((Rows(targets.rows), *x.node.shape), -math.inf, x.dtype)
    return Symbol(value('largest', _onto_constant(lowest, targets, x, 'amax').node), None)


def _check(x: Any, dim: int, index: Any, src: Any) -> None:
    are_rows = isinstance(x, Symbol) and isinstance(src, Symbol) and x.rows in OF_NODES and src.rows == NUM_EDGES
    if not are_rows or not isinstance(index, Place) or dim not in (0, -x.dim()):
        raise Refused(NO_ROW_OF_EDGES)
    if index.rows != x.rows:
        raise Refused(OTHER_ENDS)
    if (x.node.shape, x.dtype) != (src.node.shape, src.dtype) or x.is_stacked or src.is_stacked:
        raise Refused('a reduction of edges into rows of another shape or type')


def _rows_of(x: Symbol, index: Place) -> Any:
    """How many rows a reduction has that is written into others."""
    return AFTER_LAST_TARGET if 'ends_early' in x.node.attributes else Rows(index.rows)


def _of_whole_rows(index: Place, src: Symbol) -> Place:
    """The end of each edge, which an index has for each number of its row."""
    if index.inner != src.node.shape:
        raise Refused('an index that is not of the shape of what it reduces')
    return index.of_rows()


def _onto(x: Symbol, added: Symbol) -> Symbol:
    return added if x.constant == 0.0 else made('add', x, added)
