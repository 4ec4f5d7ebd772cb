"""Matrix products that sum over many rows: gradients of what multiplies nodes or edges."""

from __future__ import annotations

import torch
from torch import Tensor

# float32 loses digits where a product's inner dimension is one line of more rows
ROWS_AT_ONCE = 2048


def sum_over_rows(first: Tensor, second: Tensor) -> Tensor:
    """``first.t() @ second``, on a CPU in blocks of rows whose products are added up by halves.

    A CPU's library sums float32 products of a few columns in one line: over 10^6 rows its relative error is 1e-5, in
    blocks below 1e-6. These are plain operators of torch, which can be traced, batched and differentiated again; what
    they need in passing is a small part of the operands.

    Args:
        first: ``[rows, M]``.
        second: ``[rows, N]``.

    Returns:
        ``[M, N]``.

    Example:
        >>> first, second = torch.ones(5000, 1), torch.ones(5000, 2)
        >>> sum_over_rows(first, second)
        tensor([[5000., 5000.]])
    """
    blocks = len(first) // ROWS_AT_ONCE
    if first.device.type != 'cpu' or first.dtype != torch.float32 or blocks < 2:
        return first.t().mm(second)
    whole = blocks * ROWS_AT_ONCE
    first_blocks, second_blocks = (t[:whole].unflatten(0, (blocks, ROWS_AT_ONCE)) for t in (first, second))
    found = torch.bmm(first_blocks.transpose(1, 2), second_blocks).sum(dim=0)
    return found if whole == len(first) else found + first[whole:].t() @ second[whole:]
