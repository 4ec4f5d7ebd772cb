"""Operators that change nothing are removed; what nobody reads is not there, as a value holds only what it needs."""

from __future__ import annotations

from pygfuse.compiler.ir.values import Node, rewritten, value

_NEUTRAL = {'add': 0, 'sub': 0, 'mul': 1, 'div': 1, 'pow': 1}


def _rule(node: Node) -> Node | None:
    first = node.args[0] if node.args else None
    if node.op in ('reshape', 'expand') and node.shape == first.shape:
        return first
    if node.op in ('stack', 'cat') and len(first) == 1:
        return first[0] if node.op == 'cat' else value('reshape', first[0], shape=node.shape)
    if node.op not in _NEUTRAL:
        return None
    second, neutral = node.args[1], _NEUTRAL[node.op]
    if isinstance(second, (int, float)) and second == neutral:
        return first
    is_symmetric = node.op in ('add', 'mul')
    return second if is_symmetric and isinstance(first, (int, float)) and first == neutral else None


def remove_no_operations(output: Node) -> Node:
    """Removes sums with 0, products with 1, views that keep the shape and concatenations of one part.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x = leaf('x_j', 'source', (4,), torch.float32)
        >>> remove_no_operations(value('add', value('mul', x, 1), 0)) is x
        True
    """
    return rewritten(output, _rule)
