"""Sparse matrices that a module makes of its edges, or is given: products are sums of weighed rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch_geometric.typing import SparseTensor

from pygfuse.compiler.functions.leaves import CLASSES, FUNCTIONS, degree, scatter
from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.modules.data_objects import Fields
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.beside_edges import as_nodes, as_rows, as_value
from pygfuse.compiler.symbols.edge_tensors import REMAKING, OfEdges
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, OF_NODES, Rows, kind_of
from pygfuse.compiler.symbols.places import EdgeIndexRows, Place
from pygfuse.compiler.symbols.symbol import Symbol, handler, made, recorded
from pygfuse.compiler.symbols.turned import Turned

_PRODUCTS = 'matmul', 'mm', 'mv', 'spmm', '_sparse_mm', '__matmul__', 'smm'
_SAME = 'coalesce', 'to_sparse', 'to_sparse_coo', 'to_sparse_csr'
_TRANSPOSED = 't', 'transpose'
# reductions of rows or columns, and what they are
_REDUCTIONS = {'sum': 'sum', '_sparse_sum': 'sum', 'mean': 'mean', 'max': 'max', 'min': 'min'}
_SCALED = 'mul', '__mul__', '__rmul__'


# what a capture is told of a matrix that is an argument, by name: its entries, their numbers, and its size
EDGES, NUMBERS, ROWS, COLUMNS, IS_COALESCED = 'edge_index', 'edge_weight', 'rows', 'columns', 'is_coalesced'
_KINDS = torch.Tensor, SparseTensor
_MEANS = 'sum', 'add', 'mean'


class SparseMatrix:
    """A matrix with a number, or a row of numbers, for each edge; those of edges between the same ends are added.

    Args:
        rows, columns: The ends of the edges that are its rows and columns.
        values: The numbers, or rows of them, of which there are no products; None of a ``SparseTensor`` without any.
        kind: The class of what it stands for.
        edges: Both ends, where the matrix is an argument.
        is_coalesced: Whether each place has one entry at most.
        is_merged: Whether entries of the same place have become one since, which sums of numbers do not tell.
    """

    is_sparse = True

    def __init__(
        self,
        rows: Place,
        columns: Place,
        values: Symbol | None,
        kind: type = torch.Tensor,
        edges: EdgeIndexRows | None = None,
        is_coalesced: bool = False,
        is_merged: bool = False,
    ) -> None:
        self._rows, self._columns, self._edges, self._is_coalesced = rows, columns, edges, is_coalesced
        self._numbers = values if values is None or torch.is_grad_enabled() else made('detach', values)
        self._kind, self._is_merged = kind, is_merged

    @property
    def __class__(self) -> type:
        # `isinstance` takes it for what it stands for
        return self._kind

    @property
    def shape(self) -> tuple[Rows, Rows]:
        return Rows(self._rows.rows), Rows(self._columns.rows)

    @property
    def device(self) -> torch.device:
        return self._rows.device

    @property
    def dtype(self) -> torch.dtype:
        if self._numbers is None:
            raise Refused('it reads the type of a sparse matrix without numbers')
        return self._numbers.dtype

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    sparse_size = sparse_sizes = size

    def __matmul__(self, x: Any) -> Symbol:
        return self.product(x)

    def __mul__(self, factors: Any) -> SparseMatrix:
        return _of_matrix('mul', (self, factors), {})

    __rmul__ = __mul__

    def product(self, x: Any, reduce: str = 'sum') -> Symbol:
        """The product with rows of nodes; of `torch_sparse` also means of what is added.

        Raises:
            Refused: If it is one of anything else.
        """
        given, x = x, as_nodes(x)
        if not isinstance(x, Symbol) or len(x.node.shape) > 1 or reduce not in _MEANS:
            raise Refused('a product of a sparse matrix and of something that is no row of each node')
        self._check_merged(reduce)
        message = recorded(torch.Tensor.index_select, (x, 0, self._columns))
        if self._numbers is not None:
            self._check_numbers()
            if x.dtype != self._numbers.dtype:
                raise Refused('a product of a sparse matrix and of something of another type')
            shape = (1,) * len(x.node.shape)
            message = made('mul', message, made('reshape', self._numbers, shape=shape) if shape else self._numbers)
        found = scatter(message, self._rows, 0, Rows(self._rows.rows), reduce)
        if x is not given:
            REMAKING.get().fix_nodes()
        return found

    def reduced(self, dim: int, reduce: str = 'sum') -> Symbol:
        """The sum of each row, or another reduction, or of each column where that is along the first dimension."""
        ends = self._columns if dim % 2 == 0 else self._rows
        self._check_merged(reduce)
        if self._numbers is not None:
            return scatter(self._numbers, ends, 0, Rows(ends.rows), reduce)
        if reduce != 'sum':
            raise Refused(f'{reduce} of a sparse matrix without numbers')
        # as many as there are entries, which count as ones
        return degree(ends, Rows(ends.rows))

    def scaled(self, factors: Any) -> SparseMatrix:
        """The same matrix with each row, ``[rows, 1]``, or each column, ``[1, columns]``, times a number.

        Raises:
            Refused: If the factors are anything else.
        """
        is_of_columns = isinstance(factors, Turned) and factors.at == 1
        of_nodes = factors.one if is_of_columns else factors
        if not isinstance(of_nodes, Symbol) or of_nodes.rows not in OF_NODES or of_nodes.node.shape != (1,):
            raise Refused('a sparse matrix times something else than a number for each row or each column')
        ends = self._columns if is_of_columns else self._rows
        self._check_numbers()
        own = recorded(torch.squeeze, (recorded(torch.Tensor.index_select, (of_nodes, 0, ends)), 1))
        numbers = own if self._numbers is None else recorded(torch.mul, (self._numbers, own))
        return SparseMatrix(self._rows, self._columns, numbers, self._kind, is_merged=self._is_merged)

    def _check_merged(self, reduce: str) -> None:
        # sums of numbers are the same before
        if self._is_merged and (self._numbers is None or reduce not in ('sum', 'add')):
            raise Refused(f'{reduce} of a sparse matrix whose entries of one place have become one')

    def _check_numbers(self) -> None:
        if self._numbers is not None and self._numbers.node.shape:
            raise Refused('a product of a sparse matrix with several numbers for each edge')

    def _indices(self) -> EdgeIndexRows:
        """Rows and columns of the entries."""
        if self._edges is None:
            raise Refused('it reads the entries of a sparse matrix')
        return self._edges

    def _values(self) -> Symbol:
        """The numbers of the entries."""
        if self._edges is None or self._numbers is None:
            raise Refused('it reads the entries of a sparse matrix')
        return self._numbers

    def indices(self) -> EdgeIndexRows:
        """The same once entries of the same place are one."""
        return self.same()._indices()

    def values(self) -> Symbol:
        """The same once entries of the same place are one."""
        return self.same()._values()

    def coo(self) -> tuple[Place, Place, Symbol | None]:
        """Rows, columns and numbers of the entries of a ``SparseTensor``."""
        return *self._indices(), self._numbers

    def same(self) -> SparseMatrix:
        """The same matrix, through which gradients go if they do where it is made, of one entry for each place."""
        edges = self._edges if self._is_coalesced else None
        given = self._rows, self._columns, self._numbers, self._kind, edges, self._is_coalesced
        return SparseMatrix(*given, is_merged=not self._is_coalesced)

    def transposed(self) -> SparseMatrix:
        """Rows as columns, and columns as rows."""
        given = self._columns, self._rows, self._numbers, self._kind
        return SparseMatrix(*given, is_coalesced=self._is_coalesced, is_merged=self._is_merged)

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        function = getattr(self._kind, name, None)
        if not callable(function):
            raise Refused(f'it reads .{name} of a sparse matrix')
        return lambda *args, **kwargs: _of_matrix(name, (self, *args), kwargs)

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _of_matrix(function.__name__, args, kwargs or {})


def is_of_matrix(fields: Fields) -> bool:
    """Whether what a capture is told of an argument is that of a sparse matrix."""
    return fields.kind in _KINDS


def matrix_of(fields: Fields, symbols: Mapping[str, Any]) -> SparseMatrix:
    """What stands for a sparse matrix that is an argument.

    Args:
        fields: What is known of it.
        symbols: What stands for its entries, their numbers, and its size.

    Raises:
        Refused: If it has another size than there are nodes.
    """
    size = symbols[ROWS], symbols[COLUMNS]
    edges, numbers = symbols[EDGES], symbols.get(NUMBERS)
    rows, columns = edges
    _check_size(rows, columns, size)
    return SparseMatrix(rows, columns, numbers, fields.kind, edges, fields.items[IS_COALESCED])


def _of_matrix(name: str, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """A function of a sparse matrix."""
    matrix, *others = args
    if type(matrix) is SparseMatrix and name in _PRODUCTS and len(others) in (1, 2):
        return _product(*args, **kwargs)
    if type(matrix) is SparseMatrix and name in _SAME and not kwargs:
        return matrix.same()
    if type(matrix) is SparseMatrix and name in _TRANSPOSED and not kwargs:
        return matrix.transposed()
    if type(matrix) is SparseMatrix and name in _REDUCTIONS:
        return _reduced(_REDUCTIONS[name], *args, **kwargs)
    if len(args) == 2 and name in _SCALED and not kwargs and SparseMatrix in map(type, args):
        matrix, factors = args if type(matrix) is SparseMatrix else args[::-1]
        if matrix._kind is SparseTensor:
            return matrix.scaled(factors)
    raise Refused(f'{name} of a sparse matrix')


class SparseSums:
    """Sums of rows or columns as torch gives them: sparse.

    Args:
        sums: The sums.
    """

    def __init__(self, sums: Symbol) -> None:
        self._sums = sums

    def to_dense(self) -> Symbol:
        """The sums."""
        return self._sums

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        raise Refused(f'{name} of sums of a sparse matrix')

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Refused(f'{function.__name__} of sums of a sparse matrix')


def _reduced(reduce: str, matrix: SparseMatrix, dim: Any = None) -> Symbol | SparseSums:
    is_sum, is_of_torch = reduce == 'sum', matrix._kind is torch.Tensor
    dim = dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    if type(dim) is not int or not -2 <= dim < 2:
        raise Refused(f'{reduce} of a whole sparse matrix')
    if is_of_torch and not is_sum:
        raise Refused(f'{reduce} of a sparse matrix of torch')
    found = matrix.reduced(dim, reduce)
    return SparseSums(found) if is_of_torch else found


def _product(matrix: SparseMatrix, x: Any, reduce: str = 'sum') -> Symbol:
    if matrix._kind is torch.Tensor and reduce != 'sum':
        raise Refused('a product of a sparse matrix by something else than sums')
    return matrix.product(x, reduce)


@handler('sparse_coo_tensor')
def _sparse_coo_tensor(
    indices: Any, values: Any, size: Any = None, *, dtype: Any = None, requires_grad: bool = False, **_: Any
) -> SparseMatrix:
    values = as_value(values)
    if requires_grad:
        raise Refused('a sparse matrix that has gradients of its own')
    if not isinstance(indices, EdgeIndexRows):
        raise Refused('a sparse matrix of something else than the edges')
    _check_numbers(values)
    if dtype not in (None, values.dtype):
        raise Refused('a conversion to another type')
    rows, columns = indices
    inner = tuple(values.node.shape)
    if size is not None and inner:
        if tuple(size[2:]) != inner:
            raise Refused('a sparse matrix of another size than its values have')
        size = size[:2]
    _check_size(rows, columns, size)
    return SparseMatrix(rows, columns, values)


def _check_numbers(values: Any) -> None:
    is_row = isinstance(values, Symbol) and values.rows == NUM_EDGES and len(values.node.shape) <= 1
    if not is_row or values.is_stacked or not values.dtype.is_floating_point:
        raise Refused('a sparse matrix of something else than floating numbers for each edge')


def _check_size(rows: Place, columns: Place, size: Any) -> None:
    """Raises a Refused if a matrix of these ends does not say that it has as many rows and columns as nodes."""
    if size is None or len(size) != 2:
        raise Refused('a sparse matrix that does not say how many nodes there are')
    # torch makes numbers of what stands for them, which are those of nothing else
    if tuple([kind_of(as_rows(one)) for one in size]) != (rows.rows, columns.rows):
        raise Refused('a sparse matrix of another size than there are nodes')


def _sparse_tensor(
    row: Any = None, rowptr: Any = None, col: Any = None, value: Any = None, sparse_sizes: Any = None, **others: Any
) -> Any:
    """``torch_sparse.SparseTensor`` of symbols."""
    given = row, rowptr, col, value, sparse_sizes
    if next(found_in((OfEdges, Symbol), given), None) is None:
        return SparseTensor(*given, **others)
    value = as_value(value)
    are_ends = isinstance(row, Place) and isinstance(col, Place) and not (row.inner or col.inner)
    if not are_ends or row.is_target == col.is_target or rowptr is not None:
        raise Refused('a sparse matrix of something else than the edges')
    if value is not None:
        _check_numbers(value)
    _check_size(row, col, sparse_sizes)
    return SparseMatrix(row, col, value, SparseTensor)


def _spmm(index: Any, value: Any, m: Any, n: Any, matrix: Any) -> Symbol:
    """`torch_sparse.spmm` of symbols."""
    return _sparse_coo_tensor(index, value, (m, n)) @ matrix


def _of_matrix_of_torch_sparse(src: Any, other: Any, reduce: str = 'sum') -> Any:
    """`torch_sparse.matmul` of symbols."""
    return _of_matrix('matmul', (src, other, reduce), {})


def _named(name: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """A function of `torch_sparse` of matrices that are captured, or of others."""
    if SparseMatrix not in map(type, (*args, *kwargs.values())):
        return function(*args, **kwargs)
    return _of_matrix(name, args, kwargs)


def _of_torch_sparse() -> dict[Callable, Callable]:
    try:
        import torch_sparse
    except (ImportError, OSError):
        return {}
    named = {
        getattr(torch_sparse, name): functools.partial(_named, name, getattr(torch_sparse, name))
        for name in ('sum', 'mean', 'max', 'min', 'mul')
    }
    return {torch_sparse.spmm: _spmm, torch_sparse.matmul: _of_matrix_of_torch_sparse, **named}


def _of_torch(kind: type) -> Callable:
    """The class of sparse tensors of one type, as older code makes these."""

    def made_of(*given: Any) -> Any:
        if next(found_in((OfEdges, Symbol), given), None) is None:
            return kind(*given)
        return _sparse_coo_tensor(*given)

    return made_of


FUNCTIONS.update(_of_torch_sparse())
CLASSES.update({kind: _of_torch(kind) for kind in (torch.sparse.FloatTensor, torch.sparse.DoubleTensor)})
CLASSES[SparseTensor] = _sparse_tensor
