"""Orders of dimensions within rows, taken last: rows are gathered, multiplied and added up as they lie in memory."""

from __future__ import annotations

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, SHARED, Node, rewritten, value

# what leaves the dimensions within rows as they are
_ROW_FOR_ROW = 'of_sources', 'of_targets', 'reduce', 'reduce_to_sources', 'softmax'


def permutations_last(output: Node) -> Node:
    """Moves permutations behind gathers, reductions and elementwise operators; before sums within rows none is left.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x_i, x_j = (leaf(name, side, (2, 4), torch.float32) for name, side in (('i', 'target'), ('j', 'source')))
        >>> turned = [value('permute', x, dims=(0, 2, 1)) for x in (x_i, x_j)]
        >>> out = permutations_last(value('sum', value('mul', *turned), dims=(1,), keepdim=False))
        >>> out.attributes['dims'], [node.op for node in out.args[0].parents()]
        ((2,), ['input', 'input'])
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op in _ROW_FOR_ROW and node.args[0].op == 'permute':
        (turned,) = node.args
        return value('permute', value(node.op, turned.args[0], **node.attributes), **turned.attributes)
    if node.residency != EDGE:
        return None
    if node.op == 'sum' and node.args[0].op == 'permute':
        return _sum(node, node.args[0])
    return _elementwise(node) if node.op in OPERATIONS and OPERATIONS[node.op].elementwise else None


def _sum(node: Node, turned: Node) -> Node | None:
    order, dims = turned.attributes['dims'], node.attributes['dims']
    left = [place for k, place in enumerate(order) if k not in dims]
    if node.attributes['keepdim'] or left != sorted(left):
        return None
    return value('sum', turned.args[0], **{**node.attributes, 'dims': tuple(sorted(order[dim] for dim in dims))})


def _elementwise(node: Node) -> Node | None:
    orders = {parent.attributes['dims'] for parent in node.parents() if parent.op == 'permute'}
    if len(orders) != 1:
        return None
    order = orders.pop()
    arguments = [_in_memory(one, order, node.shape) if isinstance(one, Node) else one for one in node.args]
    if any(one is None and before is not None for one, before in zip(arguments, node.args, strict=True)):
        return None
    return value('permute', value(node.op, *arguments, **node.attributes), dims=order)


def _in_memory(one: Node, order: tuple[int, ...], shape: tuple[int, ...]) -> Node | None:
    """An argument of an operator on rows of a shape before their dimensions have an order; None if it has none."""
    if one.op == 'permute':
        return one.args[0] if one.shape == shape else None
    if one.residency == SHARED:
        return one if one.width == 1 and len(one.shape) <= 1 else None
    if len(one.shape) != len(shape):
        return None
    places = {place: k for k, place in enumerate(order)}
    before = tuple([one.shape[places[k + 1] - 1] for k in range(len(shape))])
    # which is a view where one dimension alone has several numbers
    return value('reshape', one, shape=before) if sum(size > 1 for size in one.shape) <= 1 else None
