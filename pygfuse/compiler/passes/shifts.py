"""Shifts after maps: a number that is added to an activation is added once it is mapped, as part of a bias."""

from __future__ import annotations

import torch

from pygfuse.compiler.ir.values import EDGE, SHARED, Node, rewritten, value
from pygfuse.compiler.networks.reading import ACTIVATIONS

# of larger ones more digits are lost in a difference than where they are added first
_LARGEST = 1.0


def shifts_after_maps(output: Node) -> Node:
    """Takes the linear map of an activation before a number is added, so that a network is left.

    Example:
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x, weight = leaf('x', 'edge', (2,), torch.float32), leaf('weight', 'shared', (3, 2), torch.float32)
        >>> shifted = value('sub', value('softplus', x, beta=1, threshold=20), 0.7)
        >>> out = shifts_after_maps(value('linear', shifted, weight))
        >>> out.op, out.args[0].op, out.args[0].args[0].op
        ('add', 'linear', 'softplus')
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.residency != EDGE or node.op not in ('linear', 'add'):
        return None
    if node.op == 'linear':
        return _of_map(*node.args)
    inner, bias = node.args
    is_shifted = isinstance(inner, Node) and inner.op == 'add' and _is_shift(inner.args[1])
    if not is_shifted or not isinstance(bias, Node) or bias.residency != SHARED:
        return None
    mapped, shift = inner.args
    return value('add', mapped, value('call', bias, shift, function=torch.add, keywords=()))


def _of_map(inner: Node, weight: Node) -> Node | None:
    if inner.op not in ('add', 'sub') or inner.residency != EDGE:
        return None
    activation, number = inner.args
    is_number = type(number) in (int, float) and abs(number) <= _LARGEST
    if not is_number or not isinstance(activation, Node) or activation.op not in ACTIVATIONS:
        return None
    added = number if inner.op == 'add' else -number
    shift = value('call', weight, function=_mapped_number, keywords=(('number', added),))
    return value('add', value('linear', activation, weight), shift)


def _is_shift(node: object) -> bool:
    return isinstance(node, Node) and node.op == 'call' and node.attributes['function'] is _mapped_number


def _mapped_number(weight: torch.Tensor, number: float) -> torch.Tensor:
    """The linear map of a row of one number."""
    return weight.sum(dim=-1) * number
