"""A last linear map of edges' values is taken after the sum, once a target."""

from __future__ import annotations

import functools

from pygfuse.compiler.ir.values import EDGE, SHARED, TARGET, Node, results_of, rewritten, set_of_edges, value


def linear_maps_after_sums(output: Node) -> Node:
    """Moves maps of what edges compute, and their bias, behind sums and means.

    Where values of edges are returned, maps of edges are taken anyway.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> features, weight = (leaf(*what, torch.float32) for what in (('e', 'edge', (2,)), ('w', 'shared', (3, 2))))
        >>> message = value('linear', value('relu', features), weight)
        >>> linear_maps_after_sums(value('reduce', message, reduce='sum')).op
        'linear'
    """
    return output if any(node.residency == EDGE for node in results_of(output)) else rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op != 'reduce' or node.attributes['reduce'] not in ('sum', 'mean'):
        return None
    inner, reduce = node.args[0], node.attributes['reduce']
    if inner.op in ('linear', 'matmul', 'sum') and inner.residency == EDGE and not _is_product(inner):
        return value(inner.op, value('reduce', inner.args[0], reduce=reduce), *inner.args[1:], **inner.attributes)
    if inner.op == 'reshape' and _has_map(inner.args[0]):
        return value('reshape', value('reduce', inner.args[0], reduce=reduce), **inner.attributes)
    if inner.op == 'add' and _has_map(inner):
        return _with_bias(inner, reduce)
    return _weighted(inner, reduce) if inner.op == 'mul' else None


def _has_map(node: Node) -> bool:
    if node.op == 'reshape':
        return _has_map(node.args[0])
    if node.op == 'add':
        x, y = node.args
        return isinstance(y, Node) and y.residency == SHARED and isinstance(x, Node) and _has_map(x)
    return node.op in ('linear', 'matmul', 'sum') and node.residency == EDGE and not _is_product(node)


def _is_product(node: Node) -> bool:
    """Whether it is a map of features that a call brings for each edge, which walks take as it is."""
    inner = node.args[0]
    while inner.op == 'reshape':
        inner = inner.args[0]
    return node.op == 'linear' and inner.op == 'input'


def _with_bias(inner: Node, reduce: str) -> Node | None:
    x, bias = inner.args
    if x.shape != inner.shape:
        return None
    number = set_of_edges(x)
    count = Node('degree', (), {'edges': number} if number else {}, TARGET, (), inner.dtype)
    if reduce == 'mean':
        # nothing is added where there is no edge
        count = value('clamp', count, None, 1)
    count = value('reshape', count, shape=(1,) * len(inner.shape))
    return value('add', value('reduce', x, reduce=reduce), value('mul', count, bias))


def _weighted(product: Node, reduce: str) -> Node | None:
    """Of rows times a weight each, the terms that are maps are taken of the weighted sum of what is mapped."""
    for x, weight in (product.args, product.args[::-1]):
        is_pair = isinstance(x, Node) and isinstance(weight, Node) and weight.residency != SHARED
        if is_pair and weight.shape[-1:] == (1,) and x.shape[-1] > 1 and _without_ones(x).residency == EDGE:
            maps = [term for term in _terms(_without_ones(x)) if _is_map(term)]
            if maps:
                return _taken_after(x, weight, maps, reduce)
    return None


def _without_ones(x: Node) -> Node:
    """What rows are without dimensions of 1 before them."""
    inner = x.args[0] if x.op == 'reshape' else x
    return inner if x.shape == (1,) * (len(x.shape) - len(inner.shape)) + inner.shape else x


def _terms(x: Node) -> list[Node]:
    """The terms of a sum of rows of the same shape."""
    if x.op != 'add' or not all(isinstance(part, Node) for part in x.args):
        return [x]
    return [term for part in x.args for term in (_terms(part) if part.shape == x.shape else [part])]


def _is_map(node: Node) -> bool:
    return node.op == 'linear' and node.residency == EDGE and node.args[1].residency == SHARED and not _is_product(node)


def _taken_after(x: Node, weight: Node, maps: list[Node], reduce: str) -> Node:
    rest = [term for term in _terms(_without_ones(x)) if all(term is not one for one in maps)]

    def summed(row: Node) -> Node:
        shape = (1,) * (len(x.shape) - len(row.shape)) + row.shape
        row = row if row.shape == shape else value('reshape', row, shape=shape)
        reduction = value('reduce', value('mul', row, weight), reduce=reduce)
        return _rule(reduction) or reduction

    found = [value('linear', summed(one.args[0]), one.args[1]) for one in maps]
    if rest:
        found.insert(0, summed(functools.reduce(lambda a, b: value('add', a, b), rest)))
    return functools.reduce(lambda a, b: value('add', a, b), found)
