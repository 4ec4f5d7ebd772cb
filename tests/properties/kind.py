"""What the net knows of a layer, and options that several have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tests.support.cases import EDGE_DIM, FEATURES

# an option that is not given
ABSENT = object()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A class of both packages.

    Attributes:
        fixed: Options of the constructor that all cases have.
        options: Names of the others, with their values by name; the first value is the usual one.
        width: The option that holds the width of the features, or None.
        edge: The argument that takes something of each edge, or None.
        edge_width: The option that says how many features edges have; where that is None, `FEATURES` or none.
        edge_features: How many features edges have where no option says so; None: one number.
        bipartite: Whether sources and targets may be different nodes.
        lazy: Whether the width may be found in the first call.
        takes_size: Whether ``forward`` takes a `size`.
        attention: Whether ``forward`` takes `return_attention_weights`.
        ties_differ: Whether the gradient among edges that tie may be divided otherwise than in PyG.
        edge_types: Whether ``forward`` takes the type of each edge.
        node_types: How many types of nodes there are, if ``forward`` takes the type of each.
        by_type: Whether ``forward`` takes features by type of nodes and adjacencies by type of edges.
        compiled: The class, where `pygfuse.fuse` compiles its messages and no fused class stands for it.
    """

    fixed: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]
    width: str | None = 'in_channels'
    edge: str | None = None
    edge_width: str | None = None
    edge_features: int | None = None
    bipartite: bool = True
    lazy: bool = True
    takes_size: bool = False
    attention: bool = False
    ties_differ: bool = False
    edge_types: bool = False
    node_types: int | None = None
    by_type: bool = False
    compiled: type | None = None


def named(*values: Any) -> dict[str, Any]:
    return {str(value): value for value in values}


BOTH, NEITHER = named(True, False), named(False, True)
AGGREGATIONS = named('add', 'mean', 'max', 'min', 'median')
SUMS = named('add', 'mean', 'max')
EDGES = {'none': None, 'edges': EDGE_DIM}
WIDTHS = {'in_channels': FEATURES}
