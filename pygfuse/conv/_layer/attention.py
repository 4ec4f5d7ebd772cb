"""What attention layers return besides their output, in PyG's forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import torch_sparse
from torch_geometric.utils import add_self_loops, remove_self_loops
from torch_geometric.utils.sparse import set_sparse_value

from pygfuse.call.call import common_dtype
from pygfuse.conv._layer.checks import is_edge_index, is_sparse_tensor
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.graph.graph import Graph
from pygfuse.ops import dropout_factors
from pygfuse.ops.nodes.head_products import head_products as by_kernels
from pygfuse.ops.nodes.linear import apply_weight
from pygfuse.ops.within_torch import autocast
from pygfuse.partial.rows.session import is_deferring

# above so many columns, multiplying with the zeros of the block-diagonal matrix costs more than it saves
_WIDEST_MATRIX = 32


def head_products(x: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """The dots of each head's features with one vector a head, for several sets of vectors, behind the features.

    Whatever else reads the features takes those of the result: their gradients are added up as one is computed.

    As long as they are few, all are one product with a block-diagonal matrix: the features are read once. Autocast does
    not make them products of a narrow type.

    Args:
        x: ``[nodes, H, C]``.
        vectors: Each ``[1, H, C]``.

    Returns:
        The features, and for each set ``[nodes, H]``.
    """
    # a kernel reads all rows, of which some may be deferred
    found = by_kernels(x, *vectors) if len(vectors) <= 2 and not is_deferring() else None
    if found is not None:
        return found
    heads, dtype = x.shape[1], common_dtype((x, *vectors))
    with autocast.off(x.device):
        return x, *_head_products(x.to(dtype), [vector.to(dtype) for vector in vectors], heads)


def _head_products(x: Tensor, vectors: Sequence[Tensor], heads: int) -> list[Tensor]:
    if heads * len(vectors) > _WIDEST_MATRIX:
        return [(x * vector).sum(dim=-1) for vector in vectors]
    return list(apply_weight(x.flatten(1), _block_diagonal(vectors, heads)).split(heads, dim=1))


def _block_diagonal(vectors: Sequence[Tensor], heads: int) -> Tensor:
    """The vectors of heads as rows, each beside zeros for the features of the other heads."""
    if heads == 1:
        return torch.cat([*vectors], dim=1)[0]
    identity = torch.eye(heads, dtype=vectors[0].dtype, device=vectors[0].device).unsqueeze(1)
    return torch.cat([(vector[0].unsqueeze(-1) * identity).flatten(0, 1) for vector in vectors], dim=1).t()


def both_head_products(
    x: tuple[Tensor, Tensor | None], att_src: Tensor, att_dst: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The dots of sources' features with one vector a head and of targets' with another, behind the sources' features;
    features that are those of both are read once."""
    x_src, x_dst = x
    if x_dst is x_src:
        return head_products(x_src, att_src, att_dst)
    x_src, alpha_src = head_products(x_src, att_src)
    return x_src, alpha_src, None if x_dst is None else head_products(x_dst, att_dst)[1]


def unreorganised_operands(conv: Any, x_src: Tensor, x_dst: Tensor | None, edge: EdgeInput | None) -> dict[str, Any]:
    """GAT's operands where its attention vectors are contracted with features on every edge."""
    # in PyG's order, each once and only where PyG does: a parametrization may draw at each read
    att_src, att_dst = conv.att_src, None if x_dst is None else conv.att_dst
    operands = {'x': x_src, 'x_dst': x_dst, 'att_src': att_src, 'att_dst': att_dst}
    if edge is None:
        return operands
    return {**operands, 'edge': edge.times(conv.lin_edge.weight.t()), 'att_edge': conv.att_edge}


def attention_in_order(graph: Graph, weights: Tensor, dropout: float = 0.0, seed: Tensor | None = None) -> Tensor:
    """The weights of edges in PyG's order of them, ``[edges, H]``.

    Args:
        graph: The edges that were walked.
        weights: ``[edge ids, H]``, before dropout.
        dropout: Probability of dropping, if what the walk dropped shall be 0.
        seed: As given to the walk, or None.
    """
    ids = graph.edge_ids_in_coo_order()
    if seed is not None:
        weights = weights * dropout_factors(len(weights), weights.shape[1], dropout, seed, weights.detach())
    return weights[ids]


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
