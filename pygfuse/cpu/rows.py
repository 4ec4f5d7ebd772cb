"""Kernels on the rows of nodes, no edges involved."""

from __future__ import annotations

import functools

from torch import Tensor

from pygfuse.cpu import plan
from pygfuse.cpu.kernel import Kernel
from pygfuse.cpu.layout import Layout
from pygfuse.vocabulary import sum_channels

_ROWS = 1024


@functools.lru_cache(maxsize=64)
def _head_dots_kernel(layout: Layout) -> Kernel:
    load_row, store_heads = layout.load_row, layout.store_heads

    def dots(part, tiles, x, y, rows, total_heads, width, result):
        num_tiles = len(tiles) // 2
        tile, piece = part % num_tiles, part // num_tiles
        head, channel = tiles[2 * tile], tiles[2 * tile + 1]
        for v in range(piece * _ROWS, min(rows, (piece + 1) * _ROWS)):
            product = load_row(x, v * width + channel) * load_row(y, v * width + channel)
            store_heads(result, v * total_heads + head, sum_channels(product))

    return Kernel(dots, f'dots of rows, {layout.heads} x {layout.channels}, {layout.element}', (str(layout.row),))


def head_dots(x: Tensor, y: Tensor, heads: int) -> Tensor:
    """The dot of two rows over each head's channels.

    Args:
        x: ``[rows, heads * channels]``, contiguous.
        y: The same.
        heads: Number of heads.

    Returns:
        ``[rows, heads]``.
    """
    rows, width = x.shape
    tiling = plan.tiling(x.dtype, heads, width // heads, plan.BACKWARD_REGISTERS, False)
    result = x.new_empty(rows, heads)
    pieces = (rows + _ROWS - 1) // _ROWS
    _head_dots_kernel(tiling.layout)(pieces * tiling.count, tiling.tiles, x, y, rows, heads, width, result)
    return result
