"""Sparse matrices that a module makes of its edges: their products are sums of weighed rows of the other ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pygfuse.compiler.beside_edges import as_nodes, as_rows, as_value
from pygfuse.compiler.edge_tensors import REMAKING
from pygfuse.compiler.leaves import FUNCTIONS, scatter
from pygfuse.compiler.places import NUM_EDGES, EdgeIndexRows, Place, Rows
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import Symbol, handler, made, recorded

_PRODUCTS = 'matmul', 'mm', 'mv', 'spmm', '_sparse_mm', '__matmul__', 'smm'
_SAME = 'coalesce', 'to_sparse', 'to_sparse_coo', 'to_sparse_csr'
_TRANSPOSED = 't', 'transpose'


class SparseMatrix:
    """A matrix with a number for each edge; where several edges have the same ends their numbers are added.

    Args:
        rows, columns: The ends of the edges that are its rows and columns.
        values: The numbers.
    """

    def __init__(self, rows: Place, columns: Place, values: Symbol) -> None:
        self._rows, self._columns = rows, columns
        self._values = values if torch.is_grad_enabled() else made('detach', values)

    def __matmul__(self, x: Any) -> Symbol:
        """The product with rows of nodes.

        Raises:
            Refused: If it is one of anything else.
        """
        given, x = x, as_nodes(x)
        if not isinstance(x, Symbol) or x.dtype != self._values.dtype or len(x.node.shape) > 1:
            raise Refused('a product of a sparse matrix and of something that is no row of each node')
        of_edges = recorded(torch.Tensor.index_select, (x, 0, self._columns))
        shape = (1,) * len(x.node.shape)
        weight = made('reshape', self._values, shape=shape) if shape else self._values
        found = scatter(made('mul', of_edges, weight), self._rows, 0, Rows(self._rows.rows))
        if x is not given:
            REMAKING.get().fix_nodes()
        return found

    def same(self) -> SparseMatrix:
        """The same matrix, through which gradients go if they do where it is made."""
        return SparseMatrix(self._rows, self._columns, self._values)

    def transposed(self) -> SparseMatrix:
        """Rows as columns, and columns as rows."""
        return SparseMatrix(self._columns, self._rows, self._values)

    def __getattr__(self, name: str) -> Any:
        function = getattr(torch.Tensor, name, None)
        if name.startswith('__') or not callable(function):
            raise Refused(f'it reads .{name} of a sparse matrix')
        return lambda *args, **kwargs: _of_matrix(name, (self, *args))

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _of_matrix(function.__name__, args)


def _of_matrix(name: str, args: tuple) -> Any:
    """A function of a sparse matrix."""
    matrix = args[0]
    if isinstance(matrix, SparseMatrix) and name in _PRODUCTS and len(args) == 2:
        return matrix @ args[1]
    if isinstance(matrix, SparseMatrix) and name in _SAME:
        return matrix.same()
    if isinstance(matrix, SparseMatrix) and name in _TRANSPOSED:
        return matrix.transposed()
    raise Refused(f'{name} of a sparse matrix')


@handler('sparse_coo_tensor')
def _sparse_coo_tensor(
    indices: Any, values: Any, size: Any = None, *, dtype: Any = None, requires_grad: bool = False, **_: Any
) -> SparseMatrix:
    values = as_value(values)
    if requires_grad:
        raise Refused('a sparse matrix that has gradients of its own')
    if not isinstance(indices, EdgeIndexRows) or not isinstance(values, Symbol):
        raise Refused('a sparse matrix of something else than the edges')
    if values.rows != NUM_EDGES or values.node.shape or not values.dtype.is_floating_point:
        raise Refused('a sparse matrix without a floating number for each edge')
    if dtype not in (None, values.dtype):
        raise Refused('a conversion to another type')
    return _matrix(indices, values, size)


def _matrix(edges: EdgeIndexRows, values: Symbol, size: Any) -> SparseMatrix:
    rows, columns = edges
    wanted = (rows.rows, columns.rows)
    if size is None or len(size) != 2:
        raise Refused('a sparse matrix that does not say how many nodes there are')
    # torch makes numbers of what stands for them, which are those of nothing else
    if tuple([int(as_rows(one)) for one in size]) != wanted:
        raise Refused('a sparse matrix of another size than there are nodes')
    return SparseMatrix(rows, columns, values)


def _spmm(index: Any, value: Any, m: Any, n: Any, matrix: Any) -> Symbol:
    """`torch_sparse.spmm` of symbols."""
    return _sparse_coo_tensor(index, value, (m, n)) @ matrix


def _of_torch_sparse() -> dict[Callable, Callable]:
    try:
        import torch_sparse
    except (ImportError, OSError):
        return {}
    return {torch_sparse.spmm: _spmm}


FUNCTIONS.update(_of_torch_sparse())
