"""Products of two rows and a table of numbers, as ``torch.nn.Bilinear`` has them: a matrix of each edge's own."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pygfuse.compiler.ir.values import EDGE, Node, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.symbol import Symbol, handler, made


@handler('bilinear')
def _bilinear(x: Symbol, y: Symbol, weight: Symbol, bias: Symbol | None = None) -> Symbol:
    found = bilinear(('ei', 'ej', 'oij'), 'eo', (x, y, weight)) if x.dim() == y.dim() == 2 else None
    if found is None:
        raise Refused('a bilinear map of something else than rows')
    return found if bias is None else made('add', found, bias)


def bilinear(terms: Sequence[str], result: str, tensors: Sequence[Symbol]) -> Symbol | None:
    """What an equation of two values of edges or nodes and a shared one of three dimensions gives, ``'ei,ej,oij->eo'``.

    Args:
        terms: The letters of each value's dimensions, in any order.
        result: The letters of the result's.
        tensors: The values.

    Returns:
        The product of one and of matrices that are maps of the other; None if the equation is another.
    """
    rows = [(term, x) for term, x in zip(terms, tensors, strict=True) if x.rows is not None and not x.is_stacked]
    tables = [(term, x) for term, x in zip(terms, tensors, strict=True) if x.rows is None]
    if len(terms) != 3 or len(rows) != 2 or len(tables) != 1 or len(result) != 2:
        return None
    # nodes are mapped once each, so that edges make the matrices
    (of_x, x), (of_numbers, numbers) = sorted(rows, key=lambda pair: pair[1].node.residency == EDGE)
    ((of_table, table),) = tables
    letters = of_x[1:] + result[1:] + of_numbers[1:]
    is_of_rows = of_x[0] == of_numbers[0] == result[0] and result[0] not in letters
    if not is_of_rows or len({*letters}) != 3 or sorted(of_table) != sorted(letters):
        return None
    dims = tuple(of_table.index(letter) for letter in letters)
    return made('own_matrix', x, numbers, Symbol(_as_map(table.node, dims), None), None)


def _as_map(table: Node, dims: tuple[int, ...]) -> Node:
    return value('call', table, function=_side_by_side, keywords=(('dims', dims),))


def _side_by_side(table: Tensor, dims: tuple[int, ...]) -> Tensor:
    """A table as the map that makes matrices, ``[in * out, numbers]``; `dims` says which dimension is which."""
    return table.permute(dims).flatten(0, 1)
