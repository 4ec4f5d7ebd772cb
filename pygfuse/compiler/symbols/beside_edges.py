"""Values as functions of torch take them beside what is made of the edges, or beside values of all nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import SHARED, found_in, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, MadeOfEdges, OfEdges
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_TARGETS, OF_NODES, Rows
from pygfuse.compiler.symbols.places import EdgeColumns
from pygfuse.compiler.symbols.sharing import check_current
from pygfuse.compiler.symbols.symbol import HANDLERS, Symbol, recorded, symbols_in

# functions that read rows, and those that put tensors one behind the other, or side by side
_READING = 'getitem', 'index_select'
_JOINING = 'cat', 'concat', 'concatenate', 'stack'
# all that put rows elsewhere
_MOVING = *_READING, *_JOINING, 'masked_select'
# those that make a tensor of one number, and that number if it is no argument
_FILLED = {'zeros': 0.0, 'zeros_like': 0.0, 'new_zeros': 0.0, 'ones': 1.0, 'ones_like': 1.0, 'new_ones': 1.0}
_FULL = 'full', 'full_like', 'new_full'
_NEW = 'new_zeros', 'new_ones', 'new_full'


def record_beside_values(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Records a function that is given something made of the edges, beside values perhaps."""
    if function.__name__ == '__getitem__' and isinstance(args[1], EdgeColumns):
        check_current(symbols_in(args[:1]))
        return HANDLERS['getitem'](*args)
    first, name = args[0][0] if args and isinstance(args[0], (tuple, list)) else args[0], function.__name__.strip('_')
    is_of_edges = isinstance(first, OfEdges) or (isinstance(first, Symbol) and first.rows == NUM_EDGES)
    if name in _MOVING and is_of_edges:
        try:
            return REMAKING.get().record(function, args, kwargs)
        except Refused:
            is_read = isinstance(first, Symbol) and name in _READING
            if not is_read and not (name in _JOINING and _dim_of(args, kwargs) != 0):
                raise
    return recorded(function, *rebuilt((args, kwargs), as_value))


def _dim_of(args: tuple, kwargs: dict[str, Any]) -> int:
    """Along which dimension tensors are joined."""
    return args[1] if len(args) > 1 else kwargs.get('dim', kwargs.get('axis', 0))


def new_of_nodes(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Symbol | None:
    """A tensor of one floating number with a row for each node, as a value of nodes; None of anything else."""
    sizes = args[1] if len(args) > 1 and isinstance(args[1], (tuple, list)) else args[1:]
    is_of_nodes = any(isinstance(size, Rows) and size.kind in OF_NODES for size in sizes[:1])
    if function.__name__ not in _NEW or not is_of_nodes:
        return None
    dtype = kwargs.get('dtype') or args[0].dtype
    return HANDLERS[function.__name__](*args, **kwargs) if dtype.is_floating_point else None


def as_value(found: Any) -> Any:
    """What is made of the edges as a value of edges, or a shared one; anything else as it is."""
    if not isinstance(found, MadeOfEdges) or isinstance(found, EdgeColumns):
        return found
    node = REMAKING.get().node_of(found.made)
    return Symbol(node, None if node.residency == SHARED else NUM_EDGES)


def as_given(symbol: Symbol) -> Symbol:
    """A value of edges that is computed of such of a call, as if the call brought it.

    Raises:
        Refused: If it is computed of anything else.
    """
    remaking = REMAKING.get()
    with torch._C.DisableTorchFunction():
        return Symbol(remaking.node_of(remaking.of_value(symbol)), symbol.rows)


def as_rows(size: Any) -> Any:
    """A number that is that of the nodes as one that stands for it; the plan is then for as many nodes."""
    remaking = REMAKING.get()
    if remaking is None or type(size) is not int or size != remaking.num_nodes:
        return size
    remaking.fix_nodes()
    return Rows(NUM_TARGETS)


def with_nodes(arguments: Any) -> Any:
    """Arguments with shared values that have a row for each node as values of nodes; None if there are none."""
    return rebuilt(arguments, as_nodes) if any(_has_rows(one) for one in found_in(Symbol, arguments)) else None


def as_written(symbol: Symbol, result: Any) -> tuple[Symbol, Symbol]:
    """A symbol that is written to, and its result, both as values of the same rows."""
    result = as_value(result)
    if result.rows in OF_NODES and _has_rows(symbol):
        found = as_nodes(symbol)
        symbol.node, symbol.rows, symbol.constant = found.node, found.rows, found.constant
    return symbol, result


def as_nodes(item: Any) -> Any:
    """A shared value that has a row for each node as one of nodes; anything else as it is.

    Who goes on with it notes that the plan is for as many nodes (`Remaking.fix_nodes`).
    """
    if not _has_rows(item):
        return item
    found = Symbol(value('as_nodes', item.node), NUM_TARGETS)
    found.constant, found.is_given = _number_in(item), item.is_given
    # they may be written into as one
    found.sharing = item.sharing
    return found


def _has_rows(item: Any) -> bool:
    remaking = REMAKING.get()
    is_shared = isinstance(item, Symbol) and item.rows is None and not item.is_stacked
    return is_shared and remaking is not None and item.node.shape[:1] == (remaking.num_nodes,)


def _number_in(symbol: Symbol) -> float | None:
    """The number that a tensor is made of, if it is of one."""
    if symbol.node.op != 'call':
        return symbol.constant
    name, args = symbol.node.attributes['function'].__name__, symbol.node.args
    if name in _FILLED:
        return _FILLED[name]
    is_full = name in _FULL and len(args) > 1 and type(args[-1]) in (int, float)
    return float(args[-1]) if is_full else None
