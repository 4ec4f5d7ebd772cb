"""What has no gradient is computed of values that have none, and not cut off behind them."""

from __future__ import annotations

from typing import Any

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, Node, is_brought, mapped, rewritten, value

_ALSO = ('softmax', 'sum', 'linear')


def detached_first(output: Node) -> Node:
    """Moves `detach` before the operators that give its argument on edges, so that programs have words for all between.

    What others read with its gradient is computed twice then.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x_i, x_j = leaf('x_i', 'target', (1,), torch.float32), leaf('x_j', 'source', (1,), torch.float32)
        >>> score = value('add', x_i, x_j)
        >>> detached_first(value('detach', value('softmax', score))).op
        'softmax'
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op != 'detach':
        return None
    inner = node.args[0]
    if inner.op == 'detach':
        return inner
    if inner.residency != EDGE or is_brought(inner) or not _is_moved(inner):
        return None
    return value(inner.op, *mapped(inner.args, _detached), **inner.attributes)


def _detached(argument: Node) -> Any:
    return value('detach', argument) if argument.dtype.is_floating_point else argument


def _is_moved(node: Node) -> bool:
    operation = OPERATIONS.get(node.op)
    return node.op in _ALSO or (operation is not None and (operation.elementwise or operation.selects))
