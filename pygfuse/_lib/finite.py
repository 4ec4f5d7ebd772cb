"""Whether all numbers of a tensor are finite."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds no NaN and nothing infinite; a tensor of a GPU makes the host wait.

    Example:
        >>> import torch
        >>> is_finite(torch.ones(3)), is_finite(torch.tensor([1.0, float('inf'), float('-inf')]))
        (True, False)
        >>> is_finite(torch.tensor([3e38, 3e38]))
        True
    """
    # what is not finite makes the sum so, which is one operator; the sum of finite numbers may be too large
    return math.isfinite(tensor.detach().sum()) or bool(tensor.isfinite().all())


def are_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether all numbers of some small tensors are finite: where they are, two operators tell so.

    Example:
        >>> are_finite([torch.ones(3), torch.ones(2, 2)]), are_finite([torch.ones(3), torch.tensor([float('nan')])])
        (True, False)
    """
    if len(tensors) > 1 and math.isfinite(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).sum()):
        return True
    return all(map(is_finite, tensors))
