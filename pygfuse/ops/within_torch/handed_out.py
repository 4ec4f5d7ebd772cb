"""Results that backward reads, which the caller may write into all the same: ``out += bias``, ``out.relu_()``.

PyTorch refuses the backward pass of what saved a tensor that was written to since. A result of edges' messages is no
such tensor in PyG, whose sums save no result, so layers write into theirs.
"""

from __future__ import annotations

import torch
from torch import Tensor


class HandedOut:
    """A result in the memory of a tensor that is saved.

    It has a count of writes of its own, which is looked at before the saved tensor is read.

    Attributes:
        result: The result, until it is taken.

    Example:
        >>> saved = torch.ones(2)
        >>> handed_out = HandedOut(saved)
        >>> result = handed_out.taken()
        >>> handed_out.was_written
        False
        >>> _ = result.add_(1.0)
        >>> handed_out.was_written, saved._version
        (True, 0)
    """

    def __init__(self, saved: Tensor) -> None:
        self.result: Tensor | None = saved.data
        # the count of writes without the memory, which may be on another device by then
        self._count = self.result.detach()
        self._before = self._count._version
        self._count.data = torch.empty(0, dtype=saved.dtype, device=saved.device)

    def taken(self) -> Tensor:
        """The result; nothing holds it here since."""
        result, self.result = self.result, None
        return result

    @property
    def was_written(self) -> bool:
        """Whether somebody wrote into the result, and so into the saved tensor."""
        return self._count._version != self._before
