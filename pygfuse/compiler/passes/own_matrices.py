"""Products by a matrix of each edge's own: after a sum of products where one follows, else once a node."""

from __future__ import annotations

from torch import Tensor

from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, Node, in_order, rewritten, value


def own_matrices_after_sums(output: Node) -> Node:
    """Leaves products by own matrices, ``own_matrix``, where only a sum reads them; writes out the others.

    With ``W = lin(e).view(in, out)`` the product ``x @ W`` is the sum over the numbers ``e_k`` of an edge of
    ``e_k * (x @ W_k)``. What is added up for each target is linear in the products of `e` and `x`: these are added up,
    and mapped once a target. Elsewhere every ``x @ W_k`` is taken once a node.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x, e = leaf('x_j', SOURCE, (4,), torch.float32), leaf('e', EDGE, (2,), torch.float32)
        >>> product = value('own_matrix', x, e, leaf('weight', SHARED, (12, 2), torch.float32), None)
        >>> own_matrices_after_sums(value('reduce', product, reduce='sum')).args[0].op
        'own_matrix'
        >>> own_matrices_after_sums(value('reduce', product, reduce='max')).args[0].op
        'reshape'
    """
    output = rewritten(output, _sum_first)
    nodes = in_order(output)
    read = [id(parent) for node in nodes for parent in node.parents()]
    summed = [id(node.args[0]) for node in nodes if _is_sum(node) and _is_taken(node.args[0])]
    kept = {product for product in summed if read.count(product) == 1}

    def rule(node: Node) -> Node | None:
        return _written_out(node) if node.op == 'own_matrix' and id(node) not in kept else None

    return rewritten(output, rule)


def _is_sum(node: Node) -> bool:
    return node.op == 'reduce' and node.attributes['reduce'] in ('sum', 'mean')


def _is_taken(node: Node) -> bool:
    """Whether products of sources' rows and numbers of edges can be added up."""
    is_product = node.op == 'own_matrix' and [part.residency for part in node.args[:2]] == [SOURCE, EDGE]
    return is_product and all(part is None or part.residency == SHARED for part in node.args[2:])


def _sum_first(node: Node) -> Node | None:
    """A sum of a view of products as that view of their sum."""
    if not _is_sum(node) or node.args[0].op != 'reshape':
        return None
    product = node.args[0]
    while product.op == 'reshape':
        (product,) = product.args
    return (
        value('reshape', value('reduce', product, **node.attributes), shape=node.shape) if _is_taken(product) else None
    )


def _written_out(product: Node) -> Node:
    x, numbers, weight, bias = product.args
    (size,), width = numbers.shape, (x.width, product.width)
    each = value('reshape', value('matmul', x, _shared(weight, _side_by_side, width)), shape=(size, width[1]))
    out = value('sum', value('mul', value('reshape', numbers, shape=(size, 1)), each), dims=(1,), keepdim=True)
    if bias is not None:
        shift = value('matmul', x, _shared(bias, _as_matrix, width))
        out = value('add', out, value('reshape', shift, shape=(1, width[1])))
    return value('reshape', out, shape=(width[1],))


def _shared(weight: Node, function: object, width: tuple[int, ...]) -> Node:
    return value('call', weight, function=function, keywords=(('width', width),))


def _side_by_side(weight: Tensor, width: tuple[int, int]) -> Tensor:
    """The matrices of all numbers side by side: ``[in, numbers * out]``."""
    return weight.view(*width, -1).transpose(1, 2).reshape(width[0], -1)


def _as_matrix(bias: Tensor, width: tuple[int, int]) -> Tensor:
    return bias.view(*width)
