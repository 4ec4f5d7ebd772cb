"""Dimensions of one number within rows, as a single head has them, taken last: networks are of rows without them."""

from __future__ import annotations

from typing import Any

import torch

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, SHARED, Node, mapped, rewritten, value

# what leaves the dimensions within rows as they are
_ROW_FOR_ROW = 'reduce', 'softmax'


def ones_last(output: Node) -> Node:
    """Moves a dimension of one number before the last one behind all that is computed on edges.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf
        >>> x_j, weight = leaf('x_j', 'source', (1, 4), torch.float32), leaf('weight', 'shared', (3, 4), torch.float32)
        >>> score = value('linear', value('on_edges', value('relu', x_j)), weight)
        >>> out = ones_last(value('reduce', value('tanh', score), reduce='sum'))
        >>> [(node.op, node.shape) for node in in_order(out)[-4:]]
        [('linear', (3,)), ('tanh', (3,)), ('reduce', (3,)), ('reshape', (1, 3))]
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op == 'reshape' and node.args[0].op == 'reshape':
        (inner,) = node.args[0].args
        return inner if inner.shape == node.shape else value('reshape', inner, shape=node.shape)
    if node.op in _ROW_FOR_ROW and _has_ones(node) and node.args[0].residency == EDGE:
        return _with_ones(value(node.op, _without(node.args[0]), **node.attributes), node)
    if node.residency != EDGE or not _has_ones(node):
        return None
    if node.op == 'linear' and node.args[1].residency == SHARED:
        return _with_ones(value('linear', _without(node.args[0]), node.args[1]), node)
    if node.op == 'cat' and node.args[1] in (-1, len(node.shape)) and all(map(_may_be_without, node.args[0])):
        return _with_ones(value('cat', tuple(map(_without, node.args[0])), -1), node)
    if node.op == 'layer_norm' and len(node.args[1]) == 1:
        return _with_ones(value('layer_norm', _without(node.args[0]), *node.args[1:], **node.attributes), node)
    is_elementwise = node.op in OPERATIONS and OPERATIONS[node.op].elementwise
    if not is_elementwise or not all(map(_may_be_without, node.parents())):
        return None
    return _with_ones(value(node.op, *mapped(node.args, _without), **node.attributes), node)


def _has_ones(node: Node) -> bool:
    return len(node.shape) > 1 and all(size == 1 for size in node.shape[:-1])


def _may_be_without(one: Node) -> bool:
    return _has_ones(one) or len(one.shape) <= (1 if one.residency == SHARED else 0)


def _without(one: Node) -> Any:
    """A row without them."""
    if one.residency == SHARED:
        return value('call', one, function=torch.flatten, keywords=()) if _has_ones(one) else one
    return value('reshape', one, shape=one.shape[-1:])


def _with_ones(row: Node, node: Node) -> Node:
    return value('reshape', row, shape=node.shape)
