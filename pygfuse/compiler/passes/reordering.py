"""Broadcast reordering: a map of a sum becomes a sum of maps, so that what belongs to nodes is mapped once a node."""

from __future__ import annotations

from typing import Any

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, rewritten, value

_MAPS = ('linear', 'matmul')


def reorder_broadcasts(output: Node) -> Node:
    """Moves linear maps and sums over channels to the terms of what they map, where a term resides with nodes.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x_i = leaf('x_i', 'target', (2,), torch.float32)
        >>> x_j = leaf('x_j', 'source', (2,), torch.float32)
        >>> weight = leaf('weight', 'shared', (3, 2), torch.float32)
        >>> out = reorder_broadcasts(value('linear', value('sub', x_j, x_i), weight))
        >>> [(node.op, node.residency) for node in out.parents()]
        [('linear', 'source'), ('linear', 'target')]
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op in OPERATIONS and OPERATIONS[node.op].selects and node.residency == EDGE:
        return _view_of_terms(node)
    if node.op not in (*_MAPS, 'sum') or node.residency != EDGE:
        return None
    inner = node.args[0]
    if inner.residency != EDGE:
        return None
    if inner.op in ('add', 'sub'):
        return _of_terms(node, inner)
    if node.op in _MAPS and inner.op == 'neg':
        return value('neg', _again(node, inner.args[0]))
    if node.op in _MAPS and inner.op in ('mul', 'div'):
        return _of_scaled(node, inner)
    return None


def _view_of_terms(node: Node) -> Node | None:
    """A view of a sum that holds a map of edges' features: the sum of views, so that maps find each other."""
    (inner,) = node.args
    if inner.op not in ('add', 'sub') or not any(_is_mapped(term) for term in inner.parents()):
        return None
    terms = []
    for term in inner.args:
        if not isinstance(term, Node):
            return None
        if term.residency == SHARED:
            keywords = (('op', node.op), ('shape', inner.shape), ('attributes', tuple(node.attributes.items())))
            terms.append(value('call', term, function=_view_of_shared, keywords=keywords))
        else:
            whole = term if term.shape == inner.shape else value('expand', term, shape=inner.shape)
            terms.append(value(node.op, whole, **node.attributes))
    return value(inner.op, *terms)


def _view_of_shared(x: Any, op: str, shape: tuple[int, ...], attributes: tuple) -> Any:
    return OPERATIONS[op].run(x.expand(1, *shape), **dict(attributes)).squeeze(0)


def _is_mapped(term: Node) -> bool:
    while term.op in OPERATIONS and OPERATIONS[term.op].selects:
        term = term.args[0]
    return term.op == 'linear' and term.residency == EDGE


def _of_terms(node: Node, inner: Node) -> Node | None:
    terms = [term for term in inner.args if isinstance(term, Node)]
    if len(terms) < 2 or not any(_goes_to_nodes(term) or _is_mapped(term) for term in terms):
        return None
    if any(term.residency == SHARED for term in terms):
        if not any(_is_mapped_or_reordered(term) for term in terms):
            return None
        return None if node.op == 'sum' else _with_constant(node, inner)
    spread = [term if term.shape == inner.shape else value('expand', term, shape=inner.shape) for term in terms]
    return value(inner.op, *(_again(node, term) for term in spread))


def _with_constant(node: Node, inner: Node) -> Node | None:
    if inner.op != 'add' or any(
        term.residency == SHARED and term.shape[-1:] != inner.shape[-1:] for term in inner.args
    ):
        return None
    if any(term.residency != SHARED and term.shape != inner.shape for term in inner.args):
        return None
    mapped = []
    for term in inner.args:
        if term.residency != SHARED:
            mapped.append(_again(node, term))
        else:
            function = _LINEAR if node.op == 'linear' else _MATMUL
            mapped.append(value('call', term, node.args[1], function=function, keywords=()))
    return value('add', *mapped)


def _LINEAR(x: Any, weight: Any) -> Any:
    return x @ weight.t()


def _MATMUL(x: Any, weight: Any) -> Any:
    return x @ weight


def _is_mapped_or_reordered(term: Node) -> bool:
    """Whether a map of a term becomes one of nodes or of edges' features; else a constant is better left with it."""
    in_sum = term.op in ('add', 'sub') and any(_is_mapped_or_reordered(p) for p in term.parents())
    return term.residency in (SOURCE, TARGET) or _is_mapped(term) or in_sum


def _goes_to_nodes(term: Node) -> bool:
    """Whether a map of a term is one of nodes, or comes nearer to one."""
    return term.residency != EDGE or (term.op in ('add', 'sub') and any(_goes_to_nodes(p) for p in term.parents()))


def _again(node: Node, inner: Node) -> Node:
    return value(node.op, inner, *node.args[1:], **node.attributes)


def _of_scaled(node: Node, inner: Node) -> Node | None:
    """The map of a value times one number an edge: that number times the map."""
    x, y = inner.args
    if not isinstance(y, Node):
        return value(inner.op, _again(node, x), y)
    if not isinstance(x, Node):
        return value('mul', x, _again(node, y)) if inner.op == 'mul' else None
    for one, other, in_order in ((x, y, False), (y, x, True)):
        is_number = one.residency != SHARED and one.shape[-1:] == (1,) and other.shape == inner.shape
        if is_number and other.residency not in (EDGE, SHARED) and (in_order or inner.op == 'mul'):
            mapped = _again(node, other)
            return value(inner.op, mapped, one) if in_order else value('mul', one, mapped)
    return None
