"""What PyG's layers make of edges in each call, self-loops and norms, made once for an ``edge_index``.

Each time PyG makes a new tensor, whose edges would have to be sorted anew. Compiled classes call these forms.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from pygfuse.conv._fallback import adjacency_for_pyg
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED

_SIMPLE = (int, float, bool, str, type(None), torch.dtype)


def _kept(function: Callable) -> Callable:
    """A function of an ``edge_index`` whose result is kept with it, where nothing else decides it."""

    @functools.wraps(function)
    def prepared(edge_index: Any, *args: Any, **kwargs: Any) -> Any:
        others = (*args, *kwargs.values())
        is_plain = type(edge_index) is Tensor and edge_index.layout is torch.strided
        if not is_plain or torch.compiler.is_compiling() or not all(isinstance(other, _SIMPLE) for other in others):
            return function(adjacency_for_pyg(edge_index), *args, **kwargs)
        key = ('prepared', function.__name__, args, tuple(kwargs.items()))
        found = ATTACHED.get(edge_index, key)
        if found is None:
            state = state_of(edge_index)
            with torch.inference_mode(False), torch.no_grad():
                made = function(adjacency_for_pyg(edge_index), *args, **kwargs)
            if state is None or any(part is edge_index for part in made):
                return made
            found = ATTACHED.keep(edge_index, key, state, made, held=edge_index.detach())
        return found

    return prepared


_PREPARED = {
    function: _kept(function) for function in (gcn_norm, add_self_loops, add_remaining_self_loops, remove_self_loops)
}
# methods that read nothing of their layer
_PREPARED_METHODS = (ChebConv.__norm__,)


def _kept_method(function: Callable) -> Callable:
    """The same of a method that reads nothing of its layer."""
    kept = _kept(functools.wraps(function)(functools.partial(function, None)))
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


def _with_globals(function: types.FunctionType, changed: dict[str, Any]) -> types.FunctionType:
    namespace = {**function.__globals__, **changed}
    copied = types.FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copied, function)
