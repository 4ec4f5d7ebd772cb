"""Sums of a few numbers of an edge's own, written out: what is left is computed number by number."""

from __future__ import annotations

import functools

from torch import Tensor

from pygfuse.compiler.ir.values import EDGE, SHARED, Node, in_order, rewritten, value
from pygfuse.compiler.programs.emission import is_features

# each term is an operand of its own, or several
_MOST_TERMS = 8
# the same of rows that are mapped, where networks and sums over channels take less time
MOST_MAPPED = 2


def small_sums_written_out(reduction: Node, most_mapped: int = _MOST_TERMS) -> Node:
    """Replaces sums, softmaxes and linear maps of short rows of edges by their terms.

    Args:
        reduction: A reduction; one of something that is reduced itself is left as it is.
        most_mapped: Numbers in the longest row whose linear map is written out.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x_i, x_j = leaf('x_i', 'target', (2, 4), torch.float32), leaf('x_j', 'source', (2, 4), torch.float32)
        >>> message = value('sum', value('mul', x_i, x_j), dims=(1,), keepdim=False)
        >>> found = small_sums_written_out(value('reduce', message, reduce='sum'))
        >>> [node.op for node in in_order(found) if node.residency == 'edge']
        ['mul', 'index', 'index', 'add']
    """
    if any(node.op == 'reduce' for node in in_order(reduction.args[0])):
        return reduction
    return rewritten(reduction, functools.partial(_written_out, most_mapped))


def _written_out(most_mapped: int, node: Node) -> Node | None:
    if node.residency != EDGE:
        return None
    if node.op == 'sum' and len(node.attributes['dims']) == 1:
        return _sum(node.args[0], node.attributes['dims'][0], node.attributes['keepdim'])
    if node.op == 'softmax_of_row':
        return _softmax(node.args[0], node.attributes['dim'])
    if node.op == 'linear':
        return _linear(*node.args, most_mapped)
    return None


def _parts(x: Node, dim: int, keepdim: bool, most: int = _MOST_TERMS) -> list[Node] | None:
    """The numbers along a dimension, each by itself; None if they are many."""
    if x.residency != EDGE or x.shape[dim - 1] > most:
        return None
    before = (slice(None),) * (dim - 1)
    places = range(x.shape[dim - 1])
    return [value('index', x, places=(*before, slice(k, k + 1) if keepdim else k)) for k in places]


def _sum(x: Node, dim: int, keepdim: bool) -> Node | None:
    parts = _parts(x, dim, keepdim)
    return None if parts is None else functools.reduce(lambda a, b: value('add', a, b), parts)


def _softmax(x: Node, dim: int) -> Node | None:
    parts = _parts(x, dim, True)
    if parts is None:
        return None
    highest = functools.reduce(lambda a, b: value('maximum', a, b), parts)
    grown = value('exp', value('sub', x, highest))
    return value('div', grown, _sum(grown, dim, True))


def _linear(x: Node, weight: Node, most: int) -> Node | None:
    """A map of what is computed on each edge; what the call brings is mapped by the walk itself."""
    if len(x.shape) != 1 or weight.residency != SHARED or is_features(x):
        return None
    parts = _parts(x, 1, True, most)
    if parts is None:
        return None
    # one column is a row of a shared value
    columns = [value('call', weight, function=_column, keywords=(('k', k),)) for k in range(len(parts))]
    terms = [value('mul', part, column) for part, column in zip(parts, columns, strict=True)]
    return functools.reduce(lambda a, b: value('add', a, b), terms)


def _column(weight: Tensor, k: int) -> Tensor:
    return weight[:, k]
