"""Products of a chunk's values and a weight, by the faster of the libraries that torch has."""

from __future__ import annotations

import functools

import torch
from llvmlite import binding
from torch import Tensor

# below, a call of oneDNN costs more than it saves
_LEAST_OPERATIONS = 2**20
# what is narrower on its longer or shorter side is faster in MKL, where rows are summed
_LEAST_SIDES_OVER_ROWS = 96, 16


@functools.cache
def _has_faster_onednn() -> bool:
    """Whether oneDNN's products of float32 are faster than MKL's, which knows Intel's AVX-512 alone."""
    is_zen = binding.get_host_cpu_name().startswith('znver')
    return is_zen and torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, '_linear_pointwise')


def _by_onednn(values: Tensor, weight: Tensor) -> bool:
    rows, width = values.shape
    is_large = rows * width * weight.shape[0] >= _LEAST_OPERATIONS and min(width, weight.shape[0]) >= 16
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
    longer, shorter = _LEAST_SIDES_OVER_ROWS
    is_wide = max(out.shape) >= longer and min(out.shape) >= shorter
    if is_wide and _by_onednn(grad.t(), values.t()):
        out.add_(_onednn(grad.t(), values.t()))
    else:
        out.addmm_(grad.t(), values)
