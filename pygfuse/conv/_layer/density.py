"""Dense features that are mostly zero, of which a report says what would help."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pygfuse.ops.within_torch.intercepted import is_intercepted

# of fewer numbers a product takes little
_LEAST_NUMBERS = 2**18
_LEAST_WIDTH = 64
_SAMPLED_ROWS = 64
# the largest share of numbers that are not zero, as of `pygfuse.transforms.ToSparseFeatures`
_MOST_DENSE = 0.2


def note_density(conv: Any, x: Any) -> None:
    """Remembers for `pygfuse.report` which share of a layer's input is not zero, if that is little.

    Some rows are looked at, of many features that nobody wants the gradient of while others are trained: what a layer
    before has given is not what a user can keep otherwise.

    Args:
        conv: A layer that maps sparse features as they are.
        x: Its features, ``[nodes, features]``.
    """
    if torch.compiler.is_compiling():
        return
    conv.note.density = _density_of(x) if conv.spec.sparse and torch.is_grad_enabled() else None


def _density_of(x: Any) -> float | None:
    if type(x) is not Tensor or x.requires_grad or x.dim() != 2 or x.layout is not torch.strided or is_intercepted():
        return None
    # elsewhere the number would be waited for
    if x.device.type != 'cpu' or x.numel() < _LEAST_NUMBERS or x.shape[1] < _LEAST_WIDTH:
        return None
    rows = x[:: max(1, len(x) // _SAMPLED_ROWS)]
    density = int(torch.count_nonzero(rows)) / rows.numel()
    return density if density <= _MOST_DENSE else None


def advice_for_density(density: float) -> str:
    """What helps a layer of whose features so few numbers are not zero.

    Example:
        >>> advice_for_density(0.0127)
        '1.3 % of its features are not zero: pygfuse.transforms.ToSparseFeatures keeps these alone'
    """
    return f'{density:.1%} of its features are not zero: pygfuse.transforms.ToSparseFeatures keeps these alone'.replace(
        '%', ' %', 1
    )
