"""Concatenations of values of different residencies are split before what reads them.

``lin(cat([x_i, x_j]))`` is a map of every edge; ``lin_1(x_i) + lin_2(x_j)`` is two of every node.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, SHARED, Node, rewritten, value


def split_concatenations(output: Node) -> Node:
    """Splits maps, sums, elementwise operators and reductions of concatenations.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, text
        >>> x_i = leaf('x_i', 'target', (2,), torch.float32)
        >>> x_j = leaf('x_j', 'source', (2,), torch.float32)
        >>> weight = leaf('weight', 'shared', (3, 4), torch.float32)
        >>> out = split_concatenations(value('linear', value('cat', (x_i, x_j), dim=1), weight))
        >>> out.op, [node.residency for node in out.parents()]
        ('add', ['target', 'source'])
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op in ('linear', 'matmul') and _is_split(node.args[0]):
        return _map_of_parts(node)
    if node.op == 'sum' and _is_split(node.args[0]):
        return _sum_of_parts(node)
    if node.op == 'index' and _is_split(node.args[0]):
        return _index_of_parts(node)
    if node.op in ('reduce', 'softmax') and _is_split(node.args[0]):
        (whole,) = node.args
        parts = tuple(value(node.op, part, **node.attributes) for part in whole.args[0])
        return value('cat', parts, dim=whole.attributes['dim'])
    if OPERATIONS[node.op].elementwise if node.op in OPERATIONS else False:
        return _elementwise_of_parts(node)
    return stack_of_equal(node) if node.op == 'stack' and node.residency == EDGE else None


def _is_split(node: Any) -> bool:
    """Whether a value is a concatenation of values of several residencies, or of what edges compute."""
    return isinstance(node, Node) and node.op == 'cat' and node.residency == EDGE


def _bounds(whole: Node) -> list[tuple[int, int]]:
    dim = whole.attributes['dim'] - 1
    ends = list(itertools.accumulate(part.shape[dim] for part in whole.args[0]))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _narrow(tensor: torch.Tensor, dim: int, start: int, end: int) -> torch.Tensor:
    return tensor.narrow(dim, start, end - start)


def part_of_shared(shared: Node, dim: int, start: int, end: int) -> Node:
    """A part of a shared value."""
    keywords = (('dim', dim), ('start', start), ('end', end))
    return value('call', shared, function=_narrow, keywords=keywords)


def added(terms: list[Node]) -> Node:
    """The sum of values, those of one residency first."""
    return functools.reduce(lambda a, b: value('add', a, b), terms)


def _map_of_parts(node: Node) -> Node | None:
    whole, weight = node.args
    if whole.attributes['dim'] != len(whole.shape) or weight.residency != SHARED:
        return None
    dim = len(weight.shape) - 1 if node.op == 'linear' else 0
    return added(
        [
            value(node.op, part, part_of_shared(weight, dim, start, end))
            for part, (start, end) in zip(whole.args[0], _bounds(whole), strict=True)
        ]
    )


def _sum_of_parts(node: Node) -> Node:
    whole = node.args[0]
    parts = [value('sum', part, **node.attributes) for part in whole.args[0]]
    dims, dim = node.attributes['dims'], whole.attributes['dim']
    if dim in dims:
        return added(parts)
    before = 0 if node.attributes['keepdim'] else sum(d < dim for d in dims)
    return value('cat', tuple(parts), dim=dim - before)


def _index_of_parts(node: Node) -> Node | None:
    whole, places = node.args[0], node.attributes['places']
    dim = whole.attributes['dim'] - 1
    if any(place is None or place is Ellipsis for place in places):
        return None
    place = places[dim] if dim < len(places) else slice(None)
    before = sum(isinstance(p, int) for p in places[:dim])
    width = whole.shape[dim]
    if isinstance(place, int):
        place = place % width
        for part, (start, end) in zip(whole.args[0], _bounds(whole), strict=True):
            if start <= place < end:
                return value('index', part, places=(*places[:dim], place - start, *places[dim + 1 :]))
    first, last, step = place.indices(width)
    if step != 1:
        return None
    parts = []
    for part, (start, end) in zip(whole.args[0], _bounds(whole), strict=True):
        inside = max(first, start) - start, min(last, end) - start
        if inside[0] < inside[1]:
            filled = (*places, *[slice(None)] * (dim + 1 - len(places)))
            parts.append(value('index', part, places=(*filled[:dim], slice(*inside), *filled[dim + 1 :])))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else value('cat', tuple(parts), dim=dim + 1 - before)


def _elementwise_of_parts(node: Node) -> Node | None:
    wholes = [argument for argument in node.args if _is_split(argument)]
    if not wholes or any(whole.shape != node.shape for whole in wholes):
        return None
    whole = wholes[0]
    dim, bounds = whole.attributes['dim'], _bounds(whole)
    if any(other.attributes['dim'] != dim or _bounds(other) != bounds for other in wholes):
        return None
    found = []
    for k, (start, end) in enumerate(bounds):
        arguments = [_part(argument, whole, k, start, end) for argument in node.args]
        found.append(value(node.op, *arguments, **node.attributes))
    return value('cat', tuple(found), dim=dim)


def _part(argument: Any, whole: Node, k: int, start: int, end: int) -> Any:
    if not isinstance(argument, Node):
        return argument
    if _is_split(argument):
        return argument.args[0][k]
    behind = len(whole.shape) - whole.attributes['dim']
    place = len(argument.shape) - 1 - behind
    if place < 0 or argument.shape[place] == 1:
        return argument
    if argument.residency == SHARED:
        return part_of_shared(argument, place, start, end)
    return value('index', argument, places=(*[slice(None)] * place, slice(start, end)))


def stack_of_equal(node: Node) -> Node | None:
    """A stack of the same elementwise operator on several values: the operator on stacks of them."""
    (parts,) = node.args
    first = parts[0]
    if first.op not in OPERATIONS or not OPERATIONS[first.op].elementwise:
        return None
    alike = all(part.op == first.op and part.attributes == first.attributes and part.shape == first.shape
                and len(part.args) == len(first.args) for part in parts)  # fmt: skip
    if not alike:
        return None
    arguments = [_stacked([part.args[k] for part in parts], node) for k in range(len(first.args))]
    return None if any(argument is NotImplemented for argument in arguments) else value(first.op, *arguments)


def _stacked(items: list[Any], node: Node) -> Any:
    first = items[0]
    if not isinstance(first, Node):
        return first if all(type(item) is type(first) and item == first for item in items) else NotImplemented
    shape, dim = node.args[0][0].shape, node.attributes['dim']
    if not all(isinstance(item, Node) for item in items):
        return NotImplemented
    shared = [item.residency == SHARED for item in items]
    if all(shared):
        return value('call', *items, function=_stack_of_shared, keywords=(('shape', shape), ('dim', dim - 1)))
    if any(shared):
        return NotImplemented
    expanded = tuple(item if item.shape == shape else value('expand', item, shape=shape) for item in items)
    return value('stack', expanded, dim=dim)


def _stack_of_shared(*tensors: torch.Tensor, shape: tuple[int, ...], dim: int) -> torch.Tensor:
    return torch.stack([tensor.expand(shape) for tensor in tensors], dim)
