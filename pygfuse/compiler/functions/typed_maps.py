"""Products by a matrix of each edge's type, a row of a table of matrices: one value, ``typed_map``.

What becomes of it, `pygfuse.compiler.passes.typed_maps` decides: no matrix of an edge is made.
"""

from __future__ import annotations

from typing import Any

import torch

from pygfuse.compiler.ir.values import EDGE, Node, value
from pygfuse.compiler.passes.tables import tables_first
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.symbol import Symbol, made

_REFUSED = 'a linear map of each edge of its own'


def typed_product(x: Symbol, matrix: Symbol) -> Symbol:
    """Rows ``[..., 1, in]`` times matrices ``[..., in, out]`` by type, or such matrices times columns ``[..., in, 1]``.

    Before the last two dimensions there may be one more, as of heads.

    Raises:
        Refused: If the matrices are no rows of a table.
    """
    if _is_table_row(matrix):
        *blocks, rows, size = x.node.shape
        _check(rows == 1 and matrix.node.shape[:-1] == (*blocks, size))
        out = _by_type(x, matrix, 'bio' if blocks else 'io', (*blocks, 1, matrix.node.shape[-1]))
    else:
        _check(_is_table_row(x) and matrix.rows is not None)
        *blocks, size, columns = matrix.node.shape
        _check(columns == 1 and x.node.shape[:-2] == (*blocks,) and x.node.shape[-1] == size)
        out = _by_type(matrix, x, 'boi' if blocks else 'oi', (*blocks, x.node.shape[-2], 1))
    return out


def typed_product_by(terms: list[str], result: str, tensors: tuple[Any, ...]) -> Symbol:
    """The same as an equation of two values of edges writes it, as ``'ei,eio->eo'``.

    Raises:
        Refused: If the equation is no such product.
    """
    if len(terms) == 2 and not _is_table_row(tensors[1]):
        terms, tensors = terms[::-1], tensors[::-1]
    _check(len(terms) == 2 and _is_table_row(tensors[1]))
    (x, of_x), (matrix, of_matrix) = ((tensor, term[1:]) for tensor, term in zip(tensors, terms, strict=True))
    _check(isinstance(x, Symbol) and x.rows is not None and {terms[0][0], terms[1][0]} == {result[0]})
    names = {name: 'b' if name in result else 'i' for name in of_x}
    names |= {name: 'o' for name in of_matrix if name not in of_x}
    order = [name for kind in 'bo' for name in of_matrix if names[name] == kind]
    # heads first, and those of the matrix alone behind them
    _check(set(of_x) <= set(of_matrix) and result[1:] == ''.join(order) and list(of_x) == sorted(of_x, key=names.get))
    kinds = ''.join(names[name] for name in of_matrix)
    sizes = dict(zip(of_matrix, matrix.node.shape, strict=True))
    return _by_type(x, matrix, kinds, tuple(sizes[name] for name in result[1:]))


def _is_table_row(matrix: Any) -> bool:
    return isinstance(matrix, Symbol) and tables_first(matrix.node).op == 'lookup'


def _by_type(x: Symbol, matrix: Symbol, kinds: str, shape: tuple[int, ...]) -> Symbol:
    """The product, in a shape; `kinds` says of each dimension of a matrix what it is: ``b``, a block, ``i``, ``o``."""
    _check(kinds.count('i') == kinds.count('o') == 1 and kinds.count('b') <= 1 and not x.is_stacked)
    row = tables_first(matrix.node)
    table, numbers = row.args
    # those of a node, of which each edge would have another, are no types of edges
    _check(numbers.residency == EDGE)
    order = tuple(kinds.index(kind) + 1 for kind in 'bio' if kind in kinds)
    table = value('call', table, function=torch.permute, keywords=(('dims', (0, *order)),))
    flat = made('reshape', x, shape=(x.node.width,))
    out = made('typed_map', flat, _shared(table), Symbol(numbers, x.rows), counts_back=row.attributes['counts_back'])
    return made('reshape', out, shape=shape)


def _shared(node: Node) -> Symbol:
    return Symbol(node, None)


def _check(is_known: bool) -> None:
    if not is_known:
        raise Refused(_REFUSED)
