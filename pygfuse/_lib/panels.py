"""Points in panels: lanes hold points side by side, so that sums over dimensions run from the first to the last."""

from __future__ import annotations

from torch import Tensor


def pack(x: Tensor, width: int) -> Tensor:
    """Points ``[points, dims]`` in panels ``[panels, dims, width]``, the last filled with zeros.

    Example:
        >>> import torch
        >>> pack(torch.tensor([[1, 2], [3, 4], [5, 6]]), 2).tolist()
        [[[1, 3], [2, 4]], [[5, 0], [6, 0]]]
    """
    points, dims = x.shape
    panels = -(-points // width)
    packed = x.new_empty(panels, dims, width)
    whole = points // width
    packed[:whole] = x[: whole * width].view(whole, width, dims).transpose(1, 2)
    if whole < panels:
        packed[whole] = 0
        packed[whole, :, : points - whole * width] = x[whole * width :].t()
    return packed
