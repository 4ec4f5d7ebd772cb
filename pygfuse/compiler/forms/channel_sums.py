"""Sums over channels within values of edges, which a walk writes: scores of links, and of attention."""

from __future__ import annotations

import collections

from pygfuse.compiler.forms.kept import Apart, all_in_order, may_be_kept, taken_apart, with_kept
from pygfuse.compiler.ir.values import (
    EDGE,
    SHARED,
    Node,
    computed_on_edges,
    returned_of_edges,
    rewritten,
    value,
)
from pygfuse.compiler.refusal import Refused

# a sum of fewer numbers is computed again
_CHANNELS = 8


def channel_sums_apart(message: Node) -> Apart:
    """Takes sums over channels out of values of edges, as the products of both ends that score a link.

    What is the same for all channels is multiplied with the sum, and not within it.

    Args:
        message: The values, on edges.

    Raises:
        Refused: If they are computed of no such sum.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> z_i, z_j = (leaf('z', side, (8,), torch.float32) for side in ('target', 'source'))
        >>> score = value('sum', value('mul', z_i, z_j), dims=(1,), keepdim=False)
        >>> [node.op for node in channel_sums_apart(value('sigmoid', score)).kept]
        ['sum']
    """
    message = rewritten(message, _multiplied_with_sum, on_edges=True)
    order, outside, found = computed_on_edges(message), {id(message)}, []
    # each before what it is computed of
    for node in reversed(order):
        if id(node) in outside and _is_over_channels(node):
            found.append(node)
        elif id(node) in outside:
            outside |= {id(parent) for parent in node.parents()}
    if not found or not all(map(may_be_kept, found)):
        raise Refused('no sums over channels')
    return taken_apart(message, found, order)


def shared_sums_kept(output: Node) -> Node:
    """The results of a layer; sums over channels that several reductions are made of are in memory.

    A few numbers of an edge are read in place of the rows that they are the sums of.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf, value
        >>> z_i, z_j = (leaf('z', side, (8,), torch.float32) for side in ('target', 'source'))
        >>> score = value('exp', value('sum', value('mul', z_i, z_j), dims=(1,), keepdim=True))
        >>> total, weighed = (value('reduce', x, reduce='sum') for x in (score, value('mul', score, z_j)))
        >>> [node.op for node in in_order(shared_sums_kept(value('div', weighed, total))) if node.residency == EDGE]
        ['kept', 'exp', 'mul']
    """
    found = all_in_order(output)
    if any(node.op == 'softmax' for node in found):
        # whose weights have forms of their own
        return output
    roots = [node.args[0] for node in found if node.op == 'reduce' and 'leads_back' not in node.attributes]
    counts = collections.Counter(id(node) for root in roots for node in computed_on_edges(root))
    sums = [node for node in found if counts[id(node)] > 1 and _is_over_channels(node) and may_be_kept(node)]
    # what is returned is in memory already, computed of what it was computed of
    others = [*roots, *(node for one in returned_of_edges(output) for node in computed_on_edges(one))]
    is_read = any(node is other for node in sums for other in others)
    return output if not sums or is_read else with_kept(output, sums, found).message


def _is_over_channels(node: Node) -> bool:
    is_sum = node.op == 'sum' and node.args[0].residency == EDGE
    return is_sum and node.args[0].width >= _CHANNELS * node.width


def _multiplied_with_sum(node: Node) -> Node | None:
    """A sum of products with what is the same for all that is summed, as a product of the sum."""
    if node.op != 'sum' or node.residency != EDGE or node.args[0].op != 'mul':
        return None
    dims, x, keepdim = node.attributes['dims'], node.args[0], node.attributes['keepdim']
    for factor, other in (x.args, x.args[::-1]):
        if not isinstance(factor, Node) or not isinstance(other, Node) or factor.residency == SHARED:
            continue
        is_same = len(factor.shape) == len(x.shape) and all(factor.shape[d - 1] == 1 for d in dims)
        if is_same and other.shape == x.shape and max(x.shape[d - 1] for d in dims) > 1:
            product = value('mul', value('sum', other, dims=dims, keepdim=True), factor)
            kept = tuple(size for d, size in enumerate(product.shape, 1) if keepdim or d not in dims)
            return product if keepdim else value('reshape', product, shape=kept)
    return None
