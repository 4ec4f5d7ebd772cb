"""Features of edges that are mapped, and then mapped again, contracted with a shared vector, or by several maps, are
mapped once."""

from __future__ import annotations

from typing import Any

import torch

from pygfuse.compiler.ir import positions
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, SHARED, Node, rewritten, value
from pygfuse.compiler.passes.split_concatenation import stack_of_equal


def contract_edge_features(output: Node) -> Node:
    """Turns ``(lin(e) * a).sum(-1)`` into one map of `e`, here with a weight ``[D, heads]``.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
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
    if node.op == 'stack' and node.residency != SHARED:
        return (stack_of_equal(node) if node.residency == EDGE else None) or _maps_together(node)
    if node.op == 'linear' and node.residency != SHARED:
        return (_composed(node) if node.residency == EDGE else None) or _of_what_is_viewed(node)
    if node.residency != EDGE:
        return None
    return _contraction(node) if node.op == 'sum' and node.args[0].op == 'mul' else None


def _mapped_features(node: Node) -> tuple[Node, positions.Places] | None:
    """The linear map of edges' features that a value is a view of, and where its numbers are in that."""
    places = positions.everything(node.width)
    while node.op in OPERATIONS and OPERATIONS[node.op].selects:
        node, places = node.args[0], positions.through(positions.of_view(node), places)
    return (node, places) if node.op == 'linear' and node.residency == EDGE else None


def _composed(node: Node) -> Node | None:
    """A map of a map: one by the product of the weights."""
    x, weight = node.args
    found = _mapped_features(x)
    if found is None or len(x.shape) != 1 or x.residency != EDGE:
        return None
    inner, places = found
    keywords = (('places', places),)
    return value('linear', inner.args[0], value('call', weight, inner.args[1], function=_product, keywords=keywords))


def _of_what_is_viewed(node: Node) -> Node | None:
    """A map of a view that gives the numbers of a row as they are: of that row."""
    x, weight = node.args
    origin, places = x, positions.everything(x.width)
    while origin.op in OPERATIONS and OPERATIONS[origin.op].selects:
        origin, places = origin.args[0], positions.through(positions.of_view(origin), places)
    is_row = origin is not x and len(origin.shape) == 1 and places == positions.everything(origin.width)
    return value('linear', origin, weight) if is_row and len(x.shape) == 1 else None


def _product(weight: torch.Tensor, inner: torch.Tensor, places: positions.Places) -> torch.Tensor:
    whole = places == positions.everything(inner.shape[0])
    return weight @ (inner if whole else inner[list(places)])


def _maps_together(node: Node) -> Node | None:
    """A stack of maps of the same features: one map, whose weights are one under the other."""
    (parts,) = node.args
    features, widths = parts[0].args[0] if parts[0].op == 'linear' else None, {part.width for part in parts}
    are_maps = all(part.op == 'linear' and part.args[0] is features for part in parts)
    if not are_maps or node.attributes['dim'] != 1 or len(parts[0].shape) != 1 or len(widths) > 1:
        return None
    weight = value('call', *(part.args[1] for part in parts), function=_under_each_other, keywords=())
    return value('reshape', value('linear', features, weight), shape=node.shape)


def _under_each_other(*weights: torch.Tensor) -> torch.Tensor:
    return torch.cat(weights)


def _contraction(node: Node) -> Node | None:
    factors = node.args[0].args
    if not all(isinstance(factor, Node) for factor in factors):
        return None
    for x, vector in (factors, factors[::-1]):
        found = _mapped_features(x)
        if vector.residency != SHARED or found is None or x.shape != node.args[0].shape:
            continue
        mapped, places = found
        if places != positions.everything(mapped.width):
            continue
        keywords = (('shape', x.shape), ('dims', node.attributes['dims']))
        weight = value('call', mapped.args[1], vector, function=_contracted, keywords=keywords)
        out = value('linear', mapped.args[0], weight)
        return out if out.shape == node.shape else value('reshape', out, shape=node.shape)
    return None


def _contracted(weight: torch.Tensor, vector: torch.Tensor, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    taken_apart = weight.view(*shape, -1) * vector.expand(1, *shape).squeeze(0).unsqueeze(-1)
    return taken_apart.sum([d - 1 for d in dims]).reshape(-1, weight.shape[1])
