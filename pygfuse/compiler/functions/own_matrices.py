"""Products by a matrix that each edge has of its own, made by a linear map of numbers: one value, ``own_matrix``.

What becomes of it, `pygfuse.compiler.passes.own_matrices` decides: no matrix of an edge is made.
"""

from __future__ import annotations

from torch import Tensor

from pygfuse.compiler.ir.values import SHARED, Node, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.symbol import Symbol, made

# numbers of a matrix: a product by one of each edge with so few is a sum of products
MOST_OF_SMALL = 16


def product(x: Symbol, matrix: Symbol) -> Symbol:
    """Rows ``[1, in]`` times matrices ``[in, out]`` of edges, or matrices ``[out, in]`` times columns ``[in, 1]``.

    Raises:
        Refused: If the matrices are not a linear map.
    """
    if matrix.node.shape[1:] == (1,) and x.node.shape[:1] != (1,):
        out = _row_times(made('reshape', matrix, shape=(1, matrix.node.width)), x, is_transposed=True)
        return made('reshape', out, shape=(out.node.width, 1))
    return _row_times(x, matrix)


def product_of_small(x: Symbol, matrix: Symbol) -> Symbol:
    """The same of matrices of at most 16 numbers, whatever these are, as a sum of products.

    Raises:
        Refused: If there are more.
    """
    is_column = matrix.node.shape[1:] == (1,) and x.node.shape[:1] != (1,)
    row, of_edges = (matrix, made('permute', x, dims=(0, 2, 1))) if is_column else (x, matrix)
    is_known = len(row.node.shape) == len(of_edges.node.shape) == 2 and row.node.width == of_edges.node.shape[0]
    if not is_known or row.node.shape[is_column] != 1 or of_edges.node.width > MOST_OF_SMALL:
        raise Refused('a linear map of each edge of its own')
    column = made('reshape', row, shape=(row.node.width, 1))
    out = made('sum', made('mul', column, of_edges), dims=(1,), keepdim=False)
    return made('reshape', out, shape=(out.node.width, 1) if is_column else (1, out.node.width))


def _row_times(x: Symbol, matrix: Symbol, is_transposed: bool = False) -> Symbol:
    numbers, weight, bias = _linear_map(matrix.node)
    size, shape = numbers.width, matrix.node.shape
    is_known = len(shape) == 2 and numbers.shape == (size,) and weight.shape == (shape[0] * shape[1], size)
    width = shape[::-1] if is_transposed else shape
    if x.rows is None or not is_known or x.node.shape != (1, width[0]):
        raise Refused('a linear map of each edge of its own')
    if is_transposed:
        weight, bias = (None if of is None else _turned(of, shape) for of in (weight, bias))
    row = made('reshape', x, shape=(width[0],))
    shared = [None if of is None else Symbol(of, None) for of in (weight, bias)]
    return made('reshape', made('own_matrix', row, Symbol(numbers, matrix.rows), *shared), shape=(1, width[1]))


def _turned(weight: Node, shape: tuple[int, int]) -> Node:
    return value('call', weight, function=_transposed, keywords=(('shape', shape),))


def _transposed(weight: Tensor, shape: tuple[int, int]) -> Tensor:
    """What gives matrices that are turned, from what gives matrices of this shape."""
    return weight.unflatten(0, shape).transpose(0, 1).flatten(0, 1)


def _linear_map(node: Node) -> tuple[Node, Node, Node | None]:
    """What a value of edges is a map of, the weight and the bias."""
    bias = None
    while node.op == 'reshape':
        (node,) = node.args
    if node.op == 'add' and isinstance(node.args[1], Node) and node.args[1].residency == SHARED:
        node, bias = node.args
    if node.op != 'linear' or node.args[1].residency != SHARED:
        raise Refused('a linear map of each edge of its own')
    return *node.args, bias
