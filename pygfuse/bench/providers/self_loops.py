"""The edges that PyG's layers see: some of them add self-loops, which other libraries take as edges."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.utils import add_self_loops, remove_self_loops

from pygfuse.bench.layers import Training

# the layers that add self-loops
WITH_LOOPS = ('GATConv', 'GATv2Conv', 'GCNConv')


def edges_of(name: str, training: Training) -> Tensor:
    """The edges that a layer of PyG's sees."""
    if name not in WITH_LOOPS:
        return training.edge_index
    return add_self_loops(remove_self_loops(training.edge_index)[0], num_nodes=training.num_nodes)[0]
