"""Products by a matrix that each edge has of its own, made by a linear map of numbers: one value, ``own_matrix``.

What becomes of it, `pygfuse.compiler.passes.own_matrices` decides: no matrix of an edge is made.
"""

from __future__ import annotations

from torch import Tensor

from pygfuse.compiler.ir import SHARED, Node, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import Symbol, made

# numbers of a matrix: a product by one of each edge with so few is a sum of products
_MOST_OF_SMALL = 16


def is_small(x: Symbol, matrix: Symbol) -> bool:
    """Whether rows or columns are multiplied by matrices with so few numbers that they are there for each edge."""
    rows, matrices = x.node.shape, matrix.node.shape
    if len(rows) != 2 or len(matrices) != 2:
        return False
    is_column = matrices[1] == 1 and rows[0] != 1
    size, inner = (x.node.width, rows[1] == matrices[0]) if is_column else (matrix.node.width, rows[1] == matrices[0])
    return inner and (is_column or rows[0] == 1) and size <= _MOST_OF_SMALL


def product(x: Symbol, matrix: Symbol) -> Symbol:
    """Rows ``[1, in]`` times matrices ``[in, out]`` of edges, or matrices ``[out, in]`` times columns ``[in, 1]``.

    Raises:
        Refused: If the matrices are not a linear map.
    """
    if matrix.node.shape[1:] == (1,) and x.node.shape[:1] != (1,):
        out = _row_times(made('reshape', matrix, shape=(1, matrix.node.width)), x, is_transposed=True)
        return made('reshape', out, shape=(out.node.width, 1))
    return _row_times(x, matrix)


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
