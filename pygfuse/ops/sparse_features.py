"""Features of nodes that are mostly zero: a tensor that keeps the others, and the products that read them.

`SparseFeatures` stands where a dense ``x`` stands. What a first layer does with its features (dropout, a linear map, a
choice of rows) is done with the values that are not zero; any other function gets the dense tensor.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from pygfuse._lib.backends import sorting_of, sparse_products_of
from pygfuse._lib.functions import applied
from pygfuse._lib.of_shape import OF_SHAPE, told_by_shape
from pygfuse.graph.csr import Csr
from pygfuse.ops.dropout import dropout_factors, new_seed
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.ops.within_torch.lazy_values import given_values

_PRODUCT_DTYPES = (torch.float32, torch.float64)


class Pattern:
    """Where the values of a matrix are, by row and, once that is needed, by column.

    Attributes:
        pointer: Where each row begins, and the end, [rows + 1], int32.
        column: The column of each value, [values], int32.
        num_columns: Number of columns.
    """

    def __init__(self, pointer: Tensor, column: Tensor, num_columns: int) -> None:
        self.pointer = pointer
        self.column = column
        self.num_columns = num_columns

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.pointer.numel() - 1

    @functools.cached_property
    def csr(self) -> Csr:
        """The places of values by row."""
        return Csr(self.pointer, self.column, None)

    @functools.cached_property
    def csc(self) -> Csr:
        """The places of values by column, and the position of each among those by row."""
        pointer, row, position = sorting_of(self.column.device).transpose(self.pointer, self.column, self.num_columns)
        return Csr(pointer, row, None, position)

    def to(self, device: torch.device) -> Pattern:
        """The pattern on a device: itself, or a copy."""
        if device == self.column.device:
            return self
        return Pattern(self.pointer.to(device), self.column.to(device), self.num_columns)

    def product(self, values: Tensor, dense: Tensor, transposed: bool) -> Tensor:
        """The product of the matrix of these values, or of its transpose, with a dense one, which is contiguous."""
        csr, shape = self.csr, (self.num_rows, self.num_columns)
        if transposed:
            csr, shape = self.csc, shape[::-1]
        kernels = sparse_products_of(dense.device)
        if kernels is not None and not is_watched((values, dense)) and not is_batched(dense):
            return kernels.product(csr, values, dense)
        if not torch.compiler.is_compiling():
            _warn_of_nothing()
        values = values[csr.position] if transposed else values
        return torch.sparse_csr_tensor(csr.indptr, csr.index, values, shape, check_invariants=False) @ dense

    def rows(self, index: Tensor) -> tuple[Pattern, Tensor]:
        """The pattern of some rows, and the places of their values."""
        counts = self.pointer.diff()[index]
        pointer = F.pad(counts.cumsum(0), (1, 0))
        shifts = (self.pointer[:-1][index] - pointer[:-1]).repeat_interleave(counts)
        places = torch.arange(len(shifts), device=index.device) + shifts
        return Pattern(pointer.int(), self.column[places], self.num_columns), places


@functools.cache
def _warn_of_nothing() -> None:
    """Has torch say now, unheard, that its CSR tensors are new: it says so once."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.sparse_csr_tensor(torch.zeros(1, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), torch.zeros(0))


class _Product(torch.autograd.Function):
    """A matrix by its values and pattern, or its transpose, times a dense one."""

    @staticmethod
    def forward(ctx, values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool) -> Tensor:
        ctx.save_for_backward(values)
        ctx.pattern, ctx.transposed = pattern, transposed
        return pattern.product(values, dense.contiguous(), transposed)

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (values,) = ctx.saved_tensors
        return None, applied(_Product, values, grad, ctx.pattern, not ctx.transposed), None, None


class SparseFeatures(Tensor):
    """Features ``[nodes, features]`` of which only those that are not zero are kept.

    It may stand wherever a dense ``x`` may. `torch.nn.functional.dropout` draws numbers for the values that are kept
    alone (zeros stay zero), `torch.nn.functional.linear` and products with a dense matrix are sparse products, a
    kernel's on a CPU and torch's elsewhere, backward too, and rows may be chosen (``x[index]``, ``x[:n]``). ``to``,
    copies and pickles keep it as it is. Any other function gets the dense tensor: it is right, but neither fast nor
    small. What would write to it, and gradients with respect to it, are refused.

    Make one with `of` or `pygfuse.transforms.ToSparseFeatures`.

    Example:
        >>> x = SparseFeatures.of(torch.eye(3))
        >>> x
        SparseFeatures(shape=[3, 3], dtype=torch.float32, values=3)
        >>> F.linear(x, torch.ones(2, 3))
        tensor([[1., 1.],
                [1., 1.],
                [1., 1.]])
        >>> x + 1
        tensor([[2., 1., 1.],
                [1., 2., 1.],
                [1., 1., 2.]])
    """

    _pattern: Pattern
    _values: Tensor
    _size: torch.Size

    @staticmethod
    def __new__(cls, pattern: Pattern, values: Tensor) -> SparseFeatures:
        shape = pattern.num_rows, pattern.num_columns
        made = Tensor._make_wrapper_subclass(cls, shape, dtype=values.dtype, device=values.device)
        made._pattern, made._values, made._size = pattern, values, torch.Size(shape)
        return made

    # layers ask for these again and again, each time a function of torch with an answer for subclasses
    @property
    def shape(self) -> torch.Size:
        """``[nodes, features]``."""
        return self._size

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values."""
        return self._values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self._values.device

    @staticmethod
    def of(x: Tensor) -> SparseFeatures:
        """The features of a dense tensor.

        Args:
            x: ``[nodes, features]``, of a floating type.

        Raises:
            ValueError: If it is no such tensor, or requires a gradient.
        """
        if x.dim() != 2 or not x.is_floating_point() or x.layout is not torch.strided:
            raise ValueError(
                f"Expected 'x' to be dense, of shape [nodes, features] and of a floating type (got shape "
                f'{list(x.shape)}, {x.dtype}, {x.layout})'
            )
        if x.requires_grad:
            raise ValueError("Expected 'x' not to require a gradient: one of sparse features is not computed")
        row, column = x.nonzero(as_tuple=True)
        pointer = F.pad(torch.bincount(row, minlength=x.shape[0]).cumsum(0), (1, 0))
        return SparseFeatures(Pattern(pointer.int(), column.int(), x.shape[1]), x[row, column])

    def dense(self) -> Tensor:
        """The features with their zeros."""
        pattern = self._pattern
        rows = torch.arange(pattern.num_rows, device=pattern.column.device).repeat_interleave(pattern.pointer.diff())
        found = self._values.new_zeros(pattern.num_rows, pattern.num_columns)
        return found.index_put_((rows, pattern.column.long()), self._values)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in OF_SHAPE:
            return told_by_shape(func, args, kwargs)
        kwargs = kwargs or {}
        answer = _ANSWERS.get(func) if args and 'out' not in kwargs else None
        found = NotImplemented if answer is None else answer(*args, **kwargs)
        return _of_dense(func, args, kwargs) if found is NotImplemented else found

    @classmethod
    def __torch_dispatch__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func._schema.is_mutable:
            raise _refusal(str(func))
        return func(*tree_map(_densified, args), **tree_map(_densified, kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f'SparseFeatures(shape={list(self.shape)}, dtype={self.dtype}, values={self._values.numel()})'

    def __reduce_ex__(self, protocol: Any) -> Any:
        pattern = self._pattern
        return restored, (pattern.pointer, pattern.column, pattern.num_columns, self._values)

    def __deepcopy__(self, memo: dict) -> SparseFeatures:
        return SparseFeatures(self._pattern, self._values.clone())


def restored(pointer: Tensor, column: Tensor, num_columns: int, values: Tensor) -> SparseFeatures:
    """Features from what a pickle holds.

    Raises:
        ValueError: If that is no matrix.
    """
    counts, inside = pointer.diff(), (column >= 0) & (column < num_columns)
    rises = len(pointer) > 0 and pointer[0] == 0 and pointer[-1] == len(column) and bool((counts >= 0).all())
    if not (rises and bool(inside.all()) and values.shape == column.shape):
        raise ValueError('Expected the sparse features of a pickle to be rows of a matrix (they name others)')
    return SparseFeatures(Pattern(pointer, column, num_columns), values)


# what `torch.load` may read without being told
torch.serialization.add_safe_globals([restored])


def _densified(value: Any) -> Any:
    return value.dense() if isinstance(value, SparseFeatures) else value


def _refusal(name: str) -> ValueError:
    return ValueError(f'{name} would write to sparse features: use the form not in place, or take x.to_dense() before')


def _of_dense(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a function without an answer of its own gives for the dense tensor."""
    name = getattr(func, '__name__', str(func))
    writes = name in ('__setitem__', '__set__') or (name.endswith('_') and not name.endswith('__'))
    if (writes or kwargs.get('inplace')) and isinstance(args[0], SparseFeatures):
        raise _refusal(name)
    if isinstance(kwargs.get('out'), SparseFeatures):
        raise _refusal(name)
    return func(*tree_map(_densified, args), **tree_map(_densified, kwargs))


def _dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if inplace:
        return NotImplemented
    if not 0.0 < p < 1.0 or not training:
        return x if 0.0 <= p < 1.0 else SparseFeatures(x._pattern, F.dropout(x._values, p, training))
    values = x._values
    if sparse_products_of(values.device) is None:
        # torch draws uniform numbers in a quarter of the time of Bernoulli's
        return SparseFeatures(x._pattern, (values / (1.0 - p)).mul_(torch.rand(values.shape, device=x.device) >= p))
    # as those of heads, of which four are drawn at once
    factors = dropout_factors(-(-len(values) // 4), 4, p, new_seed(values), values)
    return SparseFeatures(x._pattern, values * factors.view(-1)[: len(values)])


def _product(x: Any, other: Any) -> Any:
    """``x @ other``, where `x` is sparse and the other a dense matrix of its type."""
    fits = isinstance(x, SparseFeatures) and type(other) in (Tensor, torch.nn.Parameter) and other.dim() == 2
    if not fits or x.dtype not in _PRODUCT_DTYPES or other.dtype != x.dtype or len(other) != x.shape[1]:
        return NotImplemented
    if other.layout is not torch.strided or torch.is_autocast_enabled(x.device.type) or other.device != x.device:
        return NotImplemented
    return applied(_Product, x._values, other, x._pattern, False)


def _linear(x: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    found = _product(x, weight.t()) if type(weight) in (Tensor, torch.nn.Parameter) else NotImplemented
    return found if found is NotImplemented or bias is None else found + bias


def _to(x: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    values = x._values.to(*args, **kwargs)
    if not values.is_floating_point():
        return NotImplemented
    return SparseFeatures(x._pattern.to(values.device), values)


def _same(x: SparseFeatures, *_: Any, **__: Any) -> SparseFeatures:
    return SparseFeatures(x._pattern, x._values.clone())


def _rows(x: Any, index: Any) -> Any:
    if not isinstance(x, SparseFeatures):
        return NotImplemented
    if isinstance(index, slice):
        index = torch.arange(x.shape[0], device=x.device)[index]
    if not isinstance(index, Tensor) or index.dim() != 1 or index.is_floating_point():
        return NotImplemented
    # as of any tensor: a mask, numbers from behind, and an error for one that is not there
    pattern, places = x._pattern.rows(torch.arange(x.shape[0], device=x.device)[index])
    return SparseFeatures(pattern, x._values[places])


def _index_select(x: Any, dim: int, index: Tensor) -> Any:
    return _rows(x, index) if dim in (0, -2) else NotImplemented


def _narrow(x: Any, dim: int, start: int, length: int) -> Any:
    fits = dim in (0, -2) and isinstance(start, int) and start >= 0 and start + length <= x.shape[0]
    return _rows(x, slice(start, start + length)) if fits else NotImplemented


def _require_gradient(x: SparseFeatures, requires_grad: bool = True) -> SparseFeatures:
    if requires_grad:
        raise ValueError('A gradient of sparse features is not computed: take x.to_dense() before')
    return x


_ANSWERS: dict[Callable, Callable] = {
    **dict.fromkeys((F.dropout, torch.dropout), _dropout),
    **dict.fromkeys((Tensor.__matmul__, Tensor.matmul, Tensor.mm, torch.matmul, torch.mm), _product),
    F.linear: _linear,
    Tensor.to: _to,
    Tensor.cpu: lambda x: _to(x, 'cpu'),
    Tensor.cuda: lambda x, device='cuda', non_blocking=False: _to(x, device, non_blocking=non_blocking),
    Tensor.float: lambda x: _to(x, torch.float32),
    Tensor.double: lambda x: _to(x, torch.float64),
    Tensor.clone: _same,
    Tensor.detach: lambda x: x,
    Tensor.contiguous: lambda x: x,
    Tensor.to_dense: lambda x: x.dense(),
    Tensor.__getitem__: _rows,
    **dict.fromkeys((Tensor.index_select, torch.index_select), _index_select),
    **dict.fromkeys((Tensor.narrow, torch.narrow), _narrow),
    Tensor.requires_grad_: _require_gradient,
    Tensor.requires_grad.__set__: _require_gradient,
}
