"""Products of a chunk's values and a weight, by the faster of the libraries that torch has, or by a kernel."""

from __future__ import annotations

import functools

import torch
from llvmlite import binding
from torch import Tensor

from pygfuse.cpu.products.sums_over_rows import add_sums_over_rows

# below, a call of oneDNN costs more than it saves
_LEAST_OPERATIONS = 2**20
# a narrower side makes a product of another kind
_LEAST_WIDTH = 16
_ROWS_TOGETHER = 256


@functools.cache
def is_mkl_slow() -> bool:
    """Whether torch multiplies by MKL, which knows Intel's AVX-512 alone, on a processor of AMD's."""
    return binding.get_host_cpu_name().startswith('znver') and torch.backends.mkl.is_available()


@functools.cache
def _has_faster_onednn() -> bool:
    """Whether oneDNN's products of float32 are faster than those of torch."""
    return is_mkl_slow() and hasattr(torch.ops.mkldnn, '_linear_pointwise')


def _by_onednn(values: Tensor, weight: Tensor) -> bool:
    rows, width = values.shape
    is_large = rows * width * weight.shape[0] >= _LEAST_OPERATIONS and min(width, weight.shape[0]) >= _LEAST_WIDTH
    return values.dtype == torch.float32 and is_large and _has_faster_onednn()


def _onednn(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(values, weight, bias, 'none', [], '')


def mapped(values: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """``values @ weight.t() + bias``, in `out` or elsewhere.

    Args:
        values: ``[rows, D]``.
        weight: ``[width, D]``.
        bias: ``[width]``, or None.
        out: ``[rows, width]``.
    """
    if _by_onednn(values, weight):
        return _onednn(values, weight, bias)
    if bias is None:
        return torch.mm(values, weight.t(), out=out)
    return torch.addmm(bias, values, weight.t(), out=out)


def add_mapped(values: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Adds ``values @ weight.t()`` to `out`, which is returned."""
    return out.add_(_onednn(values, weight)) if _by_onednn(values, weight) else out.addmm_(values, weight.t())


def mapped_back(grad: Tensor, weight: Tensor) -> Tensor:
    """``grad @ weight``.

    Args:
        grad: ``[rows, width]``.
        weight: ``[width, D]``.
    """
    return _onednn(grad, weight.t()) if _by_onednn(grad, weight.t()) else grad @ weight


def add_over_rows(grad: Tensor, values: Tensor, out: Tensor) -> None:
    """Adds ``grad.t() @ values``, a sum over all rows, to `out`.

    Args:
        grad: ``[rows, width]``.
        values: ``[rows, D]``.
        out: ``[width, D]``.
    """
    if values.shape[1] < _LEAST_WIDTH:
        _add_narrow(grad, values, out)
    # oneDNN would take copies of both, with columns for rows
    elif _by_onednn(grad.t(), values.t()):
        add_sums_over_rows(grad.contiguous(), values.contiguous(), out)
    else:
        out.addmm_(grad.t(), values)


def _add_narrow(grad: Tensor, values: Tensor, out: Tensor) -> None:
    """The same of few columns, which a library adds up row after row: that loses digits where many are alike.

    Blocks of rows are summed by themselves, which is no slower.
    """
    blocks = len(grad) // _ROWS_TOGETHER
    rows = blocks * _ROWS_TOGETHER
    if blocks:
        in_blocks = [tensor[:rows].unflatten(0, (blocks, _ROWS_TOGETHER)) for tensor in (values, grad)]
        out.add_(torch.bmm(in_blocks[0].transpose(1, 2), in_blocks[1]).sum(dim=0).t())
    if rows < len(grad):
        out.add_((values[rows:].t() @ grad[rows:]).t())
