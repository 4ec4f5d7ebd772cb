"""Products by a matrix that each edge has of its own, made by a linear map of numbers: one value, ``own_matrix``.

What becomes of it, `pygfuse.compiler.passes.own_matrices` decides: no matrix of an edge is made.
"""

from __future__ import annotations

from pygfuse.compiler.ir import SHARED, Node
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import Symbol, made


def product(x: Symbol, matrix: Symbol) -> Symbol:
    """Rows ``[1, in]`` times matrices ``[in, out]`` of edges.

    Raises:
        Refused: If the matrices are not a linear map.
    """
    numbers, weight, bias = _linear_map(matrix.node)
    size, width = numbers.width, matrix.node.shape
    is_known = len(width) == 2 and numbers.shape == (size,) and weight.shape == (width[0] * width[1], size)
    if x.rows is None or not is_known or x.node.shape != (1, width[0]):
        raise Refused('a linear map of each edge of its own')
    row = made('reshape', x, shape=(width[0],))
    shared = [None if of is None else Symbol(of, None) for of in (weight, bias)]
    return made('reshape', made('own_matrix', row, Symbol(numbers, matrix.rows), *shared), shape=(1, width[1]))


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
