"""Linear maps of values of edges to one number: sums of products with a row of weights, which a walk computes."""

from __future__ import annotations

from torch import Tensor

from pygfuse.compiler.ir.values import SHARED, Node, rewritten, value
from pygfuse.compiler.programs.emission import is_features


def maps_to_one_as_sums(message: Node) -> Node:
    """Replaces linear maps to one number, of what is computed on each edge, by products and sums over channels.

    Args:
        message: Values of edges.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf
        >>> x_i, x_j = leaf('x_i', 'target', (8,), torch.float32), leaf('x_j', 'source', (8,), torch.float32)
        >>> weight = leaf('weight', 'shared', (1, 8), torch.float32)
        >>> found = maps_to_one_as_sums(value('linear', value('relu', value('add', x_i, x_j)), weight))
        >>> [node.op for node in in_order(found) if node.residency == 'edge']
        ['add', 'relu', 'mul', 'sum']
    """
    return rewritten(message, _as_sum, on_edges=True)


def _as_sum(node: Node) -> Node | None:
    if node.op != 'linear':
        return None
    x, weight = node.args
    # what the call brings is mapped by the walk itself
    if node.width > 1 or len(x.shape) != 1 or weight.residency != SHARED or is_features(x):
        return None
    row = value('call', weight, function=_row, keywords=())
    return value('sum', value('mul', x, row), dims=(1,), keepdim=True)


def _row(weight: Tensor) -> Tensor:
    return weight[0]
