"""PyG's functions that make edges anew, recorded as one function each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch_geometric.utils

from pygfuse.compiler.functions.leaves import FUNCTIONS
from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.symbols.edge_tensors import OfEdges, recorded_of_edges

_FUNCTIONS = (
    torch_geometric.utils.add_self_loops,
    torch_geometric.utils.add_remaining_self_loops,
    torch_geometric.utils.remove_self_loops,
    torch_geometric.utils.to_undirected,
    torch_geometric.utils.coalesce,
    torch_geometric.utils.sort_edge_index,
)


def _leaf(function: Callable) -> Callable:
    """Such a function of what stands for edges, its arguments by their places."""
    names = [*inspect.signature(function).parameters]

    @functools.wraps(function)
    def record(*args: Any, **kwargs: Any) -> Any:
        if next(found_in(OfEdges, (args, kwargs)), None) is None:
            return function(*args, **kwargs)
        for name in names[len(args) :]:
            if name not in kwargs:
                break
            args = (*args, kwargs.pop(name))
        return recorded_of_edges(function, args, kwargs)

    return record


FUNCTIONS.update({function: _leaf(function) for function in _FUNCTIONS})
