"""What PyG's layers make of edges in each call, self-loops and norms, made once for an ``edge_index``.

Each time PyG makes a new tensor, whose edges would have to be sorted anew. Compiled classes call these forms.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from pygfuse._lib.backends import edge_norms_of
from pygfuse.conv._layer.fallback import adjacency_for_pyg
from pygfuse.graph.adjacency import FLOWS, state_of, target_row_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.orders import INT32_LIMIT
from pygfuse.ops.listed import is_list
from pygfuse.ops.within_torch.intercepted import is_intercepted

_SIMPLE = (int, float, bool, str, type(None), torch.dtype)
# stands for the edges themselves where they are part of a result
_ITSELF = object()


def kept_with_edges(function: Callable, otherwise: Callable | None = None) -> Callable:
    """A function of an ``edge_index`` whose result is kept with it, where nothing else decides it.

    Args:
        function: The function.
        otherwise: What is called where something else does, if not the function.
    """
    otherwise = otherwise or function

    @functools.wraps(function)
    def prepared(edge_index: Any, *args: Any, **kwargs: Any) -> Any:
        others = (*args, *kwargs.values())
        is_plain = type(edge_index) is Tensor and edge_index.layout is torch.strided
        if not is_plain or is_intercepted() or not all(isinstance(other, _SIMPLE) for other in others):
            return otherwise(adjacency_for_pyg(edge_index), *args, **kwargs)
        key = ('prepared', function.__name__, args, tuple(kwargs.items()))
        found = ATTACHED.get(edge_index, key)
        if found is None:
            state = state_of(edge_index)
            with torch.inference_mode(False), torch.no_grad():
                made = function(adjacency_for_pyg(edge_index), *args, **kwargs)
            if state is None:
                return made
            # what is kept may not hold the tensor that it is kept with
            kept = tuple([_ITSELF if part is edge_index else part for part in made]), type(made)
            found = ATTACHED.keep(edge_index, key, state, kept, held=edge_index.detach())
        parts, kind = found
        if parts[0] is _ITSELF:
            parts = edge_index, *parts[1:]
        return parts if kind is tuple else kind(*parts)

    return prepared


def _with_globals(function: types.FunctionType, changed: dict[str, Any]) -> types.FunctionType:
    # by the name of its file torch.compile would find the function's own
    namespace = {name: value for name, value in function.__globals__.items() if name != '__name__'} | changed
    # torch.compile keeps with the code what it made of it, for other globals
    copied = types.FunctionType(
        function.__code__.replace(), namespace, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copied, function)


class _Loops(NamedTuple):
    """What putting in remaining self-loops makes of edges, and of what belongs to them.

    Attributes:
        edge_index: The edges, self-loops last.
        others: The places of edges that are no self-loops; None for all.
        places, nodes: Those of self-loops, and their nodes.
    """

    edge_index: Tensor
    others: Tensor | None
    places: Tensor
    nodes: Tensor


def _loops_of(edge_index: Tensor, num_nodes: int | None) -> _Loops:
    is_loop = edge_index[0] == edge_index[1]
    places = is_loop.nonzero().flatten()
    others = (~is_loop).nonzero().flatten() if len(places) else None
    if others is not None and len(is_loop) <= INT32_LIMIT:
        # autograd keeps it
        others = others.int()
    found, _ = add_remaining_self_loops(edge_index, num_nodes=num_nodes)
    return _Loops(found, others, places, edge_index[0, places])


_kept_loops = kept_with_edges(_loops_of)


def _remaining_self_loops(
    edge_index: Any, edge_attr: Any = None, fill_value: Any = None, num_nodes: int | None = None
) -> tuple[Any, Any]:
    """PyG's ``add_remaining_self_loops`` of values that are others in each call, between edges that are not."""
    is_plain = type(edge_index) is Tensor and edge_index.layout is torch.strided
    is_known = isinstance(edge_attr, Tensor) and isinstance(fill_value, (int, float))
    if not is_plain or not is_known or is_intercepted():
        return add_remaining_self_loops(edge_index, edge_attr, fill_value, num_nodes)
    found, others, places, nodes = _kept_loops(edge_index, num_nodes)
    of_loops = edge_attr.new_full(
        (found.shape[1] - edge_index.shape[1] + len(places), *edge_attr.shape[1:]), fill_value
    )
    if others is not None:
        of_loops = of_loops.index_put((nodes,), edge_attr[places])
        edge_attr = edge_attr.index_select(0, others)
    return found, torch.cat([edge_attr, of_loops])


@functools.wraps(gcn_norm)
def _norms_by_kernel(
    edge_index: Any, edge_weight: Any = None, num_nodes: Any = None, improved: bool = False,
    add_self_loops: bool = True, flow: str = FLOWS[0], dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """PyG's ``gcn_norm``, by a kernel where there is one for such edges."""
    given = edge_index, edge_weight, num_nodes, improved, add_self_loops, flow, dtype
    kernels = edge_norms_of(edge_index.device) if edge_weight is None and type(num_nodes) is int else None
    is_known = kernels is not None and dtype in kernels.TYPES and flow in FLOWS
    if not is_known or not is_list(edge_index) or is_intercepted():
        return gcn_norm(*given)
    try:
        return kernels.edge_norms(edge_index, target_row_of(flow), num_nodes, add_self_loops, dtype)
    except IndexError:
        # it says what is wrong as PyG does
        return gcn_norm(*given)


_norms_of_values = _with_globals(gcn_norm, {'add_remaining_self_loops': _remaining_self_loops})
_norms_of_edges = kept_with_edges(_norms_by_kernel, _norms_of_values)


def prepared_norms(edge_index: Any, *args: Any, **kwargs: Any) -> Any:
    """PyG's ``gcn_norm``, which remembers what it made of edges, and of a matrix without values.

    Arguments, results (``edge_index`` and weights ``[edges]``, or a matrix with values) and errors are PyG's.
    """
    is_plain = isinstance(edge_index, SparseTensor) and not edge_index.has_value() and not is_intercepted()
    if not is_plain or not all(isinstance(value, _SIMPLE) for value in (*args, *kwargs.values())):
        return _norms_of_edges(edge_index, *args, **kwargs)
    key = 'norms of a matrix', args, tuple(kwargs.items())
    found = ATTACHED.get(edge_index, key)
    if found is None:
        state = state_of(edge_index)
        with torch.inference_mode(False), torch.no_grad():
            found = ATTACHED.keep(edge_index, key, state, gcn_norm(edge_index, *args, **kwargs))
    return found


_PREPARED = {function: kept_with_edges(function) for function in (add_self_loops, remove_self_loops)} | {
    add_remaining_self_loops: kept_with_edges(add_remaining_self_loops, _remaining_self_loops),
    gcn_norm: prepared_norms,
}
# methods that read nothing of their layer
_PREPARED_METHODS = (ChebConv.__norm__,)


def _kept_method(function: Callable) -> Callable:
    """The same of a method that reads nothing of its layer."""
    kept = kept_with_edges(functools.wraps(function)(functools.partial(function, None)))
    return functools.wraps(function)(lambda layer, *args, **kwargs: kept(*args, **kwargs))


def with_prepared_edges(kind: type) -> dict[str, Callable]:
    """The methods of one of PyG's classes that prepare edges, by name, with forms that remember them.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> list(with_prepared_edges(pyg.SGConv))
        ['forward']
    """
    if not kind.__module__.startswith('torch_geometric.nn.conv.'):
        return {}
    found = {}
    for name, function in vars(kind).items():
        if function in _PREPARED_METHODS:
            found[name] = _kept_method(function)
        elif isinstance(function, types.FunctionType):
            used = {n: function.__globals__.get(n) for n in function.__code__.co_names}
            changed = {n: _PREPARED[f] for n, f in used.items() if isinstance(f, types.FunctionType) and f in _PREPARED}
            if changed:
                found[name] = _with_globals(function, changed)
    return found
