"""What a dropout of values of edges is drawn from within kernels: a mark for each edge, and keys for each channel.

Nothing of edges x channels is written: kernels draw a factor again wherever they read it
(`pygfuse.program.vocabulary.dropout_factor`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.program import splitmix

# whose kernels draw; of marks a narrower type would have few
TYPES = (torch.float32, torch.float64)


def edge_marks(num_edges: int, device: torch.device, dtype: torch.dtype, shape: tuple[int, ...] = (1,)) -> Tensor:
    """A number for each edge, by which draws tell it from others.

    Args:
        num_edges: Number of edges.
        device: Where the numbers are.
        dtype: float32 or float64.
        shape: The shape of a row, of one number.

    Returns:
        ``[edges, *shape]``.

    Example:
        >>> edge_marks(3, torch.device('cpu'), torch.float32).shape
        torch.Size([3, 1])
    """
    return splitmix.marks(num_edges, device).to(dtype).view(-1, *shape)


def dropout_draws(shape: tuple[int, ...], p: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """New keys and the probability of a dropout of rows of a shape, ``[2, *shape]``.

    Args:
        shape: The shape of a row.
        p: The probability.
        dtype: float32 or float64.
        device: Whose generator draws.

    Example:
        >>> dropout_draws((8,), 0.25, torch.float64, torch.device('cpu'))[1].unique()
        tensor([0.2500], dtype=torch.float64)
    """
    keys = splitmix.keys(shape, device).to(dtype)
    return torch.stack([keys, torch.full_like(keys, p)])
