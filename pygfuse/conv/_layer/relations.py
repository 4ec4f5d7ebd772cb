"""The relations of a call's edges, as layers with a matrix for each relation take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, UninitializedParameter

from pygfuse._lib.hooks import LINEAR, why_not_linear
from pygfuse.conv._layer.checks import Inputs, is_edge_index
from pygfuse.conv._layer.untraced import NOT_TRACED
from pygfuse.graph.adjacency import INDEX_DTYPES, values_of
from pygfuse.graph.relations import Relations
from pygfuse.ops import Edges

# what `FusedConv.prepare` returns of layers each of whose calls is looked at: what their indices hold decides, too
LOOKED_AT = ()


def relations_of(inputs: Inputs, edges: Edges, num_relations: int) -> Relations:
    """The relations of a call's edges: ``edge_type``, else the values of a sparse adjacency.

    Raises:
        ValueError: If there is not an integer for each edge, or one is no relation.
    """
    edge_type = type_of_edges(inputs.adjacency, inputs.edge_type)
    if edge_type is None:
        raise ValueError("Expected 'edge_type' to be given, the relation of each edge (got None)")
    if edge_type.dim() != 1 or len(edge_type) != edges.num_user_edges:
        raise ValueError(
            f"Expected 'edge_type' of shape [{edges.num_user_edges}], a relation for each edge (got "
            f'{list(edge_type.shape)})'
        )
    if edge_type.dtype not in INDEX_DTYPES:
        raise ValueError(f"Expected 'edge_type' to hold integers (got {edge_type.dtype})")
    graph = edges.graph()
    if edge_type.device != graph.device:
        raise ValueError(f"Expected 'edge_type' on the device of 'edge_index', {graph.device} (got {edge_type.device})")
    return Relations.of(graph, edge_type, num_relations)


def why_no_relations() -> str | None:
    """The reason, if any, for which relations cannot be told here: how many pairs there are is known from values."""
    return NOT_TRACED if torch.compiler.is_compiling() else None


def type_of_edges(adjacency: Any, edge_type: Tensor | None) -> Tensor | None:
    """The relation of each edge as it was given."""
    return values_of(adjacency) if edge_type is None and not is_edge_index(adjacency) else edge_type


def why_not_stacked(maps: Sequence[Module]) -> str | None:
    """The reason, if any, for which modules, one for each relation, are not linear maps of one shape."""
    shapes = set()
    for module in maps:
        # of another class, a parametrized one among them, each read may compute a parameter
        reason = why_not_linear(module, 'a map') if type(module) in LINEAR else f'a map is a {type(module).__name__}'
        if reason is not None:
            return reason
        weight = module.weight
        if isinstance(weight, UninitializedParameter):
            return 'a map has no parameters before its first call'
        shapes.add((weight.shape, weight.dtype, module.bias is None))
    return None if len(shapes) == 1 else 'the maps have several shapes'


def check_indices(x: Tensor, count: int, name: str) -> None:
    """Raises a ValueError if indices name rows that are not there."""
    if x.dim() != 1:
        raise ValueError(f"Expected '{name}' of indices to have shape [nodes] (got {list(x.shape)})")
    if x.numel():
        least, most = torch.aminmax(x)
        if least < 0 or most >= count:
            raise ValueError(f"Expected '{name}' to hold indices 0 to {count - 1} (got {int(least)} to {int(most)})")
