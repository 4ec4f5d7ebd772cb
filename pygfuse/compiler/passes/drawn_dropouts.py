"""Dropouts of values of edges as products with factors that are drawn where they are read.

A dropout of softmax weights is a part of a walk; any other is a product, of which programs and networks have words.
Features of edges that a linear map takes are dropped in memory, as they are there before.
"""

from __future__ import annotations

from pygfuse.compiler.ir.positions import unviewed
from pygfuse.compiler.ir.values import EDGE, SHARED, Node, is_seen, kept, rewritten, set_of_edges, value
from pygfuse.ops.dropout_draws import TYPES


def dropouts_drawn(output: Node) -> Node:
    """Replaces dropouts of values of edges, but of softmax weights, by products with drawn factors.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf
        >>> x_j = leaf('x_j', 'source', (4,), torch.float32)
        >>> [node.op for node in in_order(dropouts_drawn(value('dropout', x_j, p=0.5)))]
        ['dropout_draws', 'edge_marks', 'dropout_factor', 'input', 'mul']
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op == 'linear' and _is_of_features(node.args[0]):
        dropped, *others = node.args
        return value('linear', kept(dropped), *others)
    if node.op != 'dropout' or node.dtype not in TYPES or unviewed(node.args[0]).op == 'softmax':
        return None
    (x,), number = node.args, set_of_edges(node)
    edges = {'edges': number} if number else {}
    marks = Node('edge_marks', (), edges, EDGE, (1,) * len(node.shape), node.dtype)
    draws = Node('dropout_draws', (), {'p': node.attributes['p']}, SHARED, (2, *node.shape), node.dtype)
    return value('mul', x, value('dropout_factor', marks, draws))


def _is_of_features(node: Node) -> bool:
    """Whether a value is features of edges that were dropped."""
    if node.op != 'mul' or not all(isinstance(argument, Node) for argument in node.args):
        return False
    x, factor = node.args
    return factor.op == 'dropout_factor' and x.residency == EDGE and is_seen(x)
