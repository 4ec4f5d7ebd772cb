"""Features of edges that are mapped and then contracted with a shared vector are mapped by one smaller matrix."""

from __future__ import annotations

from typing import Any

import torch

from pygfuse.compiler.ir import EDGE, SHARED, Node, rewritten, value


def contract_edge_features(output: Node) -> Node:
    """Turns ``(lin(e) * a).sum(-1)`` into one map of `e`, here with a weight ``[D, heads]``.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir import leaf
        >>> e = leaf('edge_attr', 'edge', (5,), torch.float32)
        >>> weight = leaf('weight', 'shared', (8, 5), torch.float32)
        >>> a = leaf('a', 'shared', (8,), torch.float32)
        >>> product = value('mul', value('linear', e, weight), a)
        >>> out = contract_edge_features(value('sum', product, dims=(1,), keepdim=True))
        >>> out.op, out.args[1].shape
        ('linear', (1, 5))
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op != 'sum' or node.args[0].op != 'mul' or node.residency != EDGE:
        return None
    factors = node.args[0].args
    if not all(isinstance(factor, Node) for factor in factors):
        return None
    for x, vector in (factors, factors[::-1]):
        mapped = x.args[0] if x.op == 'reshape' else x
        if vector.residency == SHARED and mapped.op == 'linear' and mapped.residency == EDGE:
            if x.shape != node.args[0].shape:
                return None
            keywords = (('shape', x.shape), ('dims', node.attributes['dims']))
            weight = value('call', mapped.args[1], vector, function=_contracted, keywords=keywords)
            out = value('linear', mapped.args[0], weight)
            return out if out.shape == node.shape else value('reshape', out, shape=node.shape)
    return None


def _contracted(weight: torch.Tensor, vector: torch.Tensor, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    taken_apart = weight.view(*shape, -1) * vector.expand(1, *shape).squeeze(0).unsqueeze(-1)
    return taken_apart.sum([d - 1 for d in dims]).reshape(-1, weight.shape[1])
