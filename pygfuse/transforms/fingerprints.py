"""What tells the edges that something was prepared for from others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from pygfuse.cpu.compilation.kernel import Kernel

_EDGES_TOGETHER = 2**16


def fingerprints(edge_index: Tensor, num_nodes: Tensor) -> Tensor:
    """What tells the edges of graphs that stand one after another from others: the order of edges does not matter.

    Args:
        edge_index: The edges of all graphs.
        num_nodes: Number of nodes of each graph, [graphs].

    Returns:
        ``[graphs, 3]``: numbers of nodes and edges, and the sum of a hash over the edges, by nodes within the graph.
    """
    # the rows of an `EdgeIndex` have no memory that a kernel could read
    edge_index = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
    ends = num_nodes.cumsum(0)
    graph_of = torch.arange(num_nodes.numel()).repeat_interleave(num_nodes)
    sources, targets = (row.long().contiguous() for row in edge_index)
    parts = max(1, -(-targets.numel() // _EDGES_TOGETHER))
    hashes, first_graphs = targets.new_zeros(targets.numel()), ends - num_nodes
    if targets.numel() and not bool(((targets >= 0) & (targets < graph_of.numel())).all()):
        return targets.new_full((num_nodes.numel(), 3), -1)
    _hash_edges(parts, sources, targets, graph_of, first_graphs, hashes)
    of_edge = graph_of[targets]
    found = torch.stack([num_nodes, torch.bincount(of_edge, minlength=num_nodes.numel())])
    return torch.cat([found, torch.zeros_like(num_nodes).index_add_(0, of_edge, hashes)[None]]).t().contiguous()


def fits(fingerprint: Tensor, edge_index: Tensor, num_nodes: int) -> bool:
    """Whether a fingerprint is that of these edges.

    Args:
        fingerprint: Of the graphs that stand one after another, see `fingerprints`.
        edge_index: The edges of all graphs.
        num_nodes: Number of their nodes.
    """
    sizes = int(fingerprint[:, 0].sum()), int(fingerprint[:, 1].sum())
    return sizes == (num_nodes, edge_index.shape[1]) and torch.equal(
        fingerprints(edge_index, fingerprint[:, 0]), fingerprint
    )


def _hash_parts(part, sources, targets, graph_of, first_nodes, hashes):
    """The hash of each edge, by its nodes' numbers within their graph."""
    for edge in range(part * _EDGES_TOGETHER, min(len(targets), (part + 1) * _EDGES_TOGETHER)):
        first = first_nodes[graph_of[targets[edge]]]
        bits = ((targets[edge] - first) << 32) ^ (sources[edge] - first)
        bits = (bits ^ (bits >> 30)) * 0x3F58476D1CE4E5B9
        bits = (bits ^ (bits >> 27)) * 0x14D049BB133111EB
        hashes[edge] = bits ^ (bits >> 31)


_hash_edges = Kernel(_hash_parts, 'the fingerprint of edges')
