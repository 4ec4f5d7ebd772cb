"""k nearest neighbours of a large cloud of few dimensions on a CPU: only in the boxes that are near enough.

The numbers are those of `pygfuse.cpu.points.knn`: a distance to a box is computed as those to its points are, and as
every operation rounds to the nearest number, none of them is less. So a box that is left out holds nothing nearer, and
nothing as near.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from pygfuse._lib.panels import pack
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.points.boxes import GROUP, boxes_of, tiled_order
from pygfuse.cpu.points.cells import PADDING
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.vectors.panels import panel_width
from pygfuse.cpu.walks.knn_boxes import nearest_in_boxes_body

# queries of one part of the work, close together
BLOCK = 32


@functools.cache
def _kernel(dtype: torch.dtype) -> Kernel:
    width = panel_width(dtype)
    element = ELEMENT_TYPES[dtype]
    panel, queries = Layout(element, 1, width), Layout(element, 1, BLOCK)
    numbers = Layout(ELEMENT_TYPES[torch.float64], 1, width)
    constants = (repr((panel.row, numbers.row, queries.row, GROUP)),)
    body = nearest_in_boxes_body(panel, numbers, queries, GROUP)
    return Kernel(body, f'nearest neighbours among boxes, {element}', constants)


def nearest_in_boxes(
    x: Tensor, y: Tensor, length: int, without_self: bool, neighbours: Tensor, queries: Tensor
) -> None:
    """Writes the nearest points of each query of one cloud, query by query, from near to far.

    Args:
        x: The points, ``[N, F]``, float32 or float64, contiguous, finite, F at least 1.
        y: The queries, ``[M, F]``, of the same type.
        length: How many neighbours a query gets: at most as many as there are.
        without_self: Whether point i is no neighbour of query i; then both are the same points.
        neighbours: Where neighbours go, ``[M * length]``, int64.
        queries: Where the numbers of queries go, counted from 0.
    """
    width = panel_width(x.dtype)
    order = tiled_order(x, width)
    points = x[order]
    panels = boxes_of(points, points, width)
    groups = boxes_of(panels.lows, panels.highs, GROUP)
    numbers = torch.zeros(len(x) + width + PADDING, dtype=torch.float64)
    numbers[: len(x)] = order
    query_order, asked = order, points
    if y is not x:
        query_order = tiled_order(y, BLOCK)
        asked = y[query_order]
    blocks = boxes_of(asked, asked, BLOCK)
    _kernel(x.dtype)(
        len(blocks.lows),
        *(pack(points, width), numbers, len(x), panels.lows, panels.highs, groups.lows, groups.highs),
        *(pack(asked, BLOCK), query_order, blocks.lows, blocks.highs, x.shape[1], int(without_self)),
        *(length, 2 * length + 3 * width, len(x), neighbours, queries),
    )
