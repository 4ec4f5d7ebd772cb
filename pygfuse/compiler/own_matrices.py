"""Products by a matrix that each edge has of its own, made by a linear map of a few numbers: never made, but applied.

With ``W = (lin(e)).view(in, out)`` the product ``x @ W`` is the sum over the numbers ``e_k`` of an edge of
``e_k * (x @ W_k)``, and every ``x @ W_k`` is taken once a node.
"""

from __future__ import annotations

from torch import Tensor

from pygfuse.compiler.ir import SHARED, Node, value
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
    each = made('matmul', row, _shared(weight, _side_by_side, width))
    each = made('reshape', each, shape=(size, width[1]))
    weighed = made('mul', made('reshape', Symbol(numbers, matrix.rows), shape=(size, 1)), each)
    out = made('sum', weighed, dims=(1,), keepdim=True)
    if bias is None:
        return out
    shift = made('matmul', row, _shared(bias, _as_matrix, width))
    return made('add', out, made('reshape', shift, shape=(1, width[1])))


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


def _shared(weight: Node, function: object, width: tuple[int, ...]) -> Symbol:
    return Symbol(value('call', weight, function=function, keywords=(('width', width),)), None)


def _side_by_side(weight: Tensor, width: tuple[int, int]) -> Tensor:
    """The matrices of all numbers side by side: ``[in, numbers * out]``."""
    return weight.view(*width, -1).transpose(1, 2).reshape(width[0], -1)


def _as_matrix(bias: Tensor, width: tuple[int, int]) -> Tensor:
    return bias.view(*width)
