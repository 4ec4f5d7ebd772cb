"""Edges that a module makes anew of those it is given, by PyG's functions, before it reads them: with self-loops, say.

Each call makes them so, and the plan is along what comes of it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_geometric.utils
from torch import Tensor

from pygfuse.compiler.ir import EDGE, leaf
from pygfuse.compiler.leaves import FUNCTIONS
from pygfuse.compiler.places import NUM_EDGES, OF_NODES, EdgeIndexRows, OfEdges, Rows
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.surroundings import is_constant
from pygfuse.compiler.symbols import Symbol

_FUNCTIONS = (
    torch_geometric.utils.add_self_loops,
    torch_geometric.utils.add_remaining_self_loops,
    torch_geometric.utils.remove_self_loops,
    torch_geometric.utils.to_undirected,
    torch_geometric.utils.coalesce,
    torch_geometric.utils.sort_edge_index,
)
# what stands for the edges, and for the number of nodes, among the arguments of such a function
_EDGES, _NODES = object(), object()


@dataclasses.dataclass(frozen=True)
class _Named:
    """Features of edges among such arguments, by the name under which a call has them."""

    name: str


@dataclasses.dataclass(frozen=True)
class Step:
    """A function that makes edges anew.

    Attributes:
        function: The function.
        arguments: What it is given, by name.
        made: The names of the values of edges that it gives beside the edges, of which some may be None.
    """

    function: Callable
    arguments: Mapping[str, Any]
    made: tuple[str | None, ...]

    def run(self, edge_index: Tensor, given: Mapping[str, Tensor], num_nodes: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The edges that it makes of others, and its values of these by name."""

        def argument(item: Any) -> Any:
            if isinstance(item, _Named):
                return given[item.name]
            return edge_index if item is _EDGES else num_nodes if item is _NODES else item

        edge_index, *others = _parts(self.function(**{name: argument(item) for name, item in self.arguments.items()}))
        return edge_index, {name: x for name, x in zip(self.made, others, strict=True) if name is not None}


def remade(
    steps: tuple[Step, ...], edge_index: Tensor, given: Mapping[str, Tensor], num_nodes: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """The edges that all steps make, and the tensors of a call with what they give of these.

    Args:
        steps: The steps.
        edge_index: The edges of the call.
        given: Its tensors by name.
        num_nodes: Number of nodes.
    """
    found = dict(given)
    for step in steps:
        edge_index, made = step.run(edge_index, found, num_nodes)
        found |= made
    return edge_index, found


def _leaf(function: Callable) -> Callable:
    """Such a function of what stands for edges."""

    @functools.wraps(function)
    def record(*args: Any, **kwargs: Any) -> Any:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
        edges = arguments['edge_index']
        if not isinstance(edges, EdgeIndexRows):
            if any(isinstance(item, (OfEdges, Symbol)) for item in arguments.values()):
                raise Refused(f'{function.__name__} of something else than the edges')
            return function(*args, **kwargs)
        remaking = edges.remaking
        if remaking is None or remaking.read is not None or edges.version != len(remaking.steps):
            raise Refused('edges that are made anew once they are read')
        said = {name: _said(function, name, item) for name, item in arguments.items()}
        made = _parts(_example(function, arguments))[1:]
        names = [f'{len(remaking.steps)}.{k} of edges made anew' for k in range(len(made))]
        names = tuple([None if one is None else name for name, one in zip(names, made, strict=True)])
        remaking.steps.append(Step(function, said, names))
        of_edges = [_symbol(name, one) for name, one in zip(names, made, strict=True)]
        found = dataclasses.replace(edges, version=edges.version + 1)
        return (found, *of_edges) if of_edges else found

    return record


def _said(function: Callable, name: str, item: Any) -> Any:
    """What an argument is in each call."""
    if isinstance(item, EdgeIndexRows):
        return _EDGES
    if isinstance(item, Rows) and int(item) in OF_NODES:
        return _NODES
    if isinstance(item, Symbol):
        is_given = item.node.op == 'input' and item.rows == NUM_EDGES and not item.is_changed
        source = item.node.attributes['source'] if is_given else None
        if not isinstance(source, str):
            raise Refused(f'{name} of {function.__name__} is computed')
        return _Named(source)
    if not is_constant(item) and item is not None:
        raise Refused(f'{name} of {function.__name__} is a {type(item).__name__}')
    return item


def _example(function: Callable, arguments: Mapping[str, Any]) -> Any:
    """What a function gives of two edges."""

    def argument(item: Any) -> Any:
        if isinstance(item, EdgeIndexRows):
            return torch.tensor([[0, 1], [1, 0]])
        if isinstance(item, Rows):
            return 2
        return torch.zeros(2, *item.node.shape, dtype=item.dtype) if isinstance(item, Symbol) else item

    # of tensors, which nobody records
    with torch._C.DisableTorchFunction():
        return function(**{name: argument(item) for name, item in arguments.items()})


def _parts(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)


def _symbol(name: str | None, example: Tensor | None) -> Symbol | None:
    return None if example is None else Symbol(leaf(name, EDGE, example.shape[1:], example.dtype, name), NUM_EDGES)


FUNCTIONS.update({function: _leaf(function) for function in _FUNCTIONS})
