"""A sum of multiples and of sums is taken apart, so that what is left has a network."""

from __future__ import annotations

from pygfuse.compiler.ir.values import EDGE, SHARED, Node, results_of, rewritten, value


def sums_taken_apart(output: Node) -> Node:
    """Moves what multiplies all edges behind sums and means, and sums values of nodes by themselves.

    A program would do so at once; a network has no words for it. Where values of edges are returned, nothing is moved.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, text
        >>> x_j, e = leaf('x_j', 'source', (3,), torch.float32), leaf('e', 'edge', (3,), torch.float32)
        >>> print(text(sums_taken_apart(value('reduce', value('mul', value('add', x_j, e), 0.5), reduce='sum'))))
        e              edge    [3]  input
        %1             target  [3]  reduce(e, reduce='sum')  over the edges of each target
        x_j            source  [3]  input
        %3             target  [3]  reduce(x_j, reduce='sum')  over the edges of each target
        %4             target  [3]  add(%3, %1)
        %5             target  [3]  mul(%4, 0.5)
    """
    return output if any(node.residency == EDGE for node in results_of(output)) else rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op != 'reduce' or node.attributes['reduce'] not in ('sum', 'mean') or node.args[0].residency != EDGE:
        return None
    (inner,) = node.args
    if inner.op == 'neg':
        return value('neg', _again(node, inner.args[0]))
    if inner.op in ('mul', 'div'):
        return _multiple(node, inner)
    return _terms(node, inner) if inner.op in ('add', 'sub') else None


def _again(reduction: Node, x: Node) -> Node:
    return value('reduce', x, **reduction.attributes)


def _multiple(reduction: Node, product: Node) -> Node | None:
    first, second = product.args
    if _is_of_edges(first, product) and _is_same_for_all(second):
        return value(product.op, _again(reduction, first), second)
    if product.op == 'mul' and _is_of_edges(second, product) and _is_same_for_all(first):
        return value(product.op, _again(reduction, second), first)
    return None


def _is_of_edges(x: object, like: Node) -> bool:
    return isinstance(x, Node) and x.residency == EDGE and x.shape == like.shape


def _is_same_for_all(x: object) -> bool:
    return not isinstance(x, Node) or x.residency == SHARED


def _terms(reduction: Node, total: Node) -> Node | None:
    """Values of edges and of nodes by themselves: the latter need no network."""
    are_values = all(isinstance(term, Node) and term.shape == total.shape for term in total.args)
    if not are_values or sorted(term.residency == EDGE for term in total.args) != [False, True]:
        return None
    if any(term.residency == SHARED for term in total.args):
        return None
    return value(total.op, *(_again(reduction, term) for term in total.args))
