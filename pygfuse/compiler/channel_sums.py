"""Sums over channels within values of edges, which a walk writes: scores of links, and of attention."""

from __future__ import annotations

from pygfuse.compiler.ir import EDGE, SHARED, Node, computed_on_edges, rewritten, value
from pygfuse.compiler.kept import Apart, may_be_kept, taken_apart
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
        >>> from pygfuse.compiler.ir import leaf, value
        >>> z_i, z_j = (leaf('z', side, (8,), torch.float32) for side in ('target', 'source'))
        >>> score = value('sum', value('mul', z_i, z_j), dims=(1,), keepdim=False)
        >>> [node.op for node in channel_sums_apart(value('sigmoid', score)).kept]
        ['sum']
    """
    message = rewritten(message, _multiplied_with_sum)
    order, outside, found = computed_on_edges(message), {id(message)}, []
    # each before what it is computed of
    for node in reversed(order):
        is_sum = node.op == 'sum' and node.args[0].residency == EDGE
        if id(node) in outside and is_sum and node.args[0].width >= _CHANNELS * node.width:
            found.append(node)
        elif id(node) in outside:
            outside |= {id(parent) for parent in node.parents()}
    if not found or not all(map(may_be_kept, found)):
        raise Refused('no sums over channels')
    return taken_apart(message, found, order)


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
