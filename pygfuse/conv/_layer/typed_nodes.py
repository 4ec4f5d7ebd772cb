"""Heterogeneous calls: features by type of nodes and an adjacency by type of edges, as one graph of all nodes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import check_adjacency, check_devices, check_tensors
from pygfuse.conv._layer.noted import Noted
from pygfuse.conv._layer.relations import why_no_relations
from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.graph import Graph
from pygfuse.graph.joined import Part, joined
from pygfuse.graph.relations import Relations

EdgeType = tuple[str, str, str]


class TypedNodes(NamedTuple):
    """Nodes of several types, one after another.

    Attributes:
        sizes: How many there are of each type.
        firsts: The number of the first of each type among all.
    """

    sizes: dict[str, int]
    firsts: dict[str, int]

    @staticmethod
    def of(x_dict: Mapping[str, Tensor]) -> TypedNodes:
        """The nodes that features belong to, in their order."""
        sizes = {kind: len(x) for kind, x in x_dict.items()}
        return TypedNodes(sizes, dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False)))

    def joined(self, edge_index_dict: Mapping[EdgeType, Any]) -> tuple[Graph, Relations]:
        """The edges of all types; relations do not keep their graph alive.

        Raises:
            ValueError: If an adjacency names a node that is not there.
        """
        sizes, firsts = self
        ends = ((kind, kind[0], kind[-1]) for kind in edge_index_dict)
        parts = [
            Part(edge_index_dict[kind], sizes[source], sizes[target], firsts[source], firsts[target])
            for kind, source, target in ends
        ]
        return joined(parts, sum(sizes.values()))

    def of_type(self, rows: Tensor, kind: str) -> Tensor:
        """The rows of one type's nodes among those of all."""
        return rows[self.firsts[kind] : self.firsts[kind] + self.sizes[kind]]


def why_not_typed(
    layer: Noted, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Any], own: Tensor
) -> str | None:
    """The reason, if any, for which a call of a layer runs PyG's path.

    Args:
        layer: The layer.
        x_dict: Features by type of nodes.
        edge_index_dict: An adjacency by type of edges.
        own: A parameter of the layer.

    Raises:
        ValueError: If an argument has another type or device than expected, or features are missing.
    """
    reason = layer.why_not() or fallback.why_not_here() or why_no_relations()
    if reason is not None:
        return reason
    if layer.flow != FLOWS[0]:
        return 'flow target_to_source between different sets of nodes'
    if not edge_index_dict:
        return 'there are no adjacencies'
    given = {f'x_dict[{kind!r}]': x for kind, x in x_dict.items()}
    check_tensors(given)
    for edge_type, adjacency in edge_index_dict.items():
        missing = [kind for kind in (edge_type[0], edge_type[-1]) if kind not in x_dict]
        if missing:
            raise ValueError(f"Expected 'x_dict' to hold {missing[0]!r}, as {edge_type} needs (got {[*x_dict]})")
        check_adjacency(adjacency)
    check_devices(next(iter(edge_index_dict.values())), given)
    first = dict([*given.items()][:1])
    for adjacency in edge_index_dict.values():
        check_devices(adjacency, first)
    return fallback.why_not_tensors(given | {'a parameter of the layer': own}, False)
