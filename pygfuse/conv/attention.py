"""What attention layers return besides their output, in PyG's forms."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import torch_sparse
from torch_geometric.utils import add_self_loops, remove_self_loops
from torch_geometric.utils.sparse import set_sparse_value

from pygfuse.conv.fused import is_edge_index, is_sparse_tensor
from pygfuse.graph import Graph


def attention_result(out: Tensor, adjacency: Any, graph: Graph, alpha: Tensor) -> Any:
    """The output with the attention weights, as PyG's layers return them.

    Args:
        out: The layer's output.
        adjacency: What the user passed.
        graph: The edges that were walked.
        alpha: ``[edges, H]`` in PyG's order of these edges.

    Returns:
        ``(out, (edge_index, alpha))``, with a sparse tensor in place of ``edge_index`` if such a one was passed, or
        ``(out, SparseTensor)``.
    """
    with_loops = graph.num_loops is not None
    if is_sparse_tensor(adjacency):
        adjacency = torch_sparse.set_diag(adjacency) if with_loops else adjacency
        return out, adjacency.set_value(alpha, layout='coo')
    if is_edge_index(adjacency):
        if isinstance(adjacency, EdgeIndex) and with_loops:
            adjacency = add_self_loops(remove_self_loops(adjacency)[0], num_nodes=graph.num_loops)[0]
            return out, (adjacency, alpha)
        return out, (graph.coo() if with_loops else adjacency, alpha)
    if with_loops:
        adjacency = add_self_loops(remove_self_loops(adjacency)[0])[0]
    return out, (set_sparse_value(adjacency, alpha), alpha)
