"""How a call is cut for a GPU: how much of a row the lanes of a warp hold, and how many edges are in flight."""

from __future__ import annotations

import dataclasses
import functools

import torch

from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cuda.arguments import KINDS
from pygfuse.cuda.layout import BLOCK, WARP, Layout
from pygfuse.graph.csr import Csr
from pygfuse.mapping.group_sizes.chooser import with_group_size
from pygfuse.mapping.mapping import EDGE_BALANCED, PART_WORK, VERTEX_BALANCED, Cut, Mapping, cut, forced

# values of a row that one lane holds, of float64 half as many: a forward walk keeps one sum, the adjoint the resident
# row and its sum
FORWARD_VALUES = 16
BACKWARD_VALUES = 8
# values of a head that must be held whole, in one lane: more would not fit registers, and a block holds it. An adjoint
# that sums k rows for parameters leaves room for a k-th
WHOLE_VALUES = 16
# values of gathered rows that one lane has in flight, and the most edges at once
VALUES_IN_FLIGHT = 16
LARGEST_BATCH = 4
# a tile that must divide a head has at least this part of the channels that a warp could hold
NARROWEST_SHARE = 4
# a device runs some thousand teams at once; parts that are twice as many even out, and smaller ones cost
PARTS_WANTED = 16384
# edges and rows of a part: it must pay for its beginning, and partial states of cut rows for their memory
SMALLEST_PART, LARGEST_PART = 8, 2048
PARTS_LIMIT = 2**30


@functools.lru_cache(maxsize=256)
def tiling(
    dtype: torch.dtype,
    device: torch.device,
    heads: int,
    channels: int,
    limit: int,
    split_channels: bool = False,
    rows: int = 1,
    degree: int = 1,
    overlapping: bool = True,
    summed: int = 1,
) -> Tiling:
    """Tiles of whole heads, as many as fit; a wider head is split if the program allows it, else dealt to a block.

    A head's tiles are alike, so the last of them may overlap the one before it by some vectors: both compute the same
    values there. Where that may not be, only tiles that divide a head are taken.

    Args:
        dtype: Type of the features.
        device: Where the tiles are needed.
        heads: Heads of a row.
        channels: Channels of each.
        limit: Values of a row that one lane may hold.
        split_channels: Whether a head may be split.
        rows: Rows that are gathered for each edge.
        degree: A power of two: subteams of lanes that find edges of their own in a typical row.
        overlapping: Whether tiles may overlap.
        summed: Rows that are summed for parameters.
    """
    element, in_flight, whole = KINDS[dtype], VALUES_IN_FLIGHT, WHOLE_VALUES // max(1, summed)
    if element == 'float64':
        # a value takes two registers
        limit, in_flight, whole = limit // 2, in_flight // 2, whole // 2
    held = _share(element, channels, limit * WARP, overlapping) if split_channels else channels
    if held == channels:
        fitting = (d for d in range(heads, 0, -1) if heads % d == 0 and Layout(element, d, channels).values <= limit)
        side_by_side = next(fitting, 1)
        starts = [(head, head * channels) for head in range(0, heads, side_by_side)]
        layout = Layout(element, side_by_side, channels)
        if layout.values > whole and layout.vectors_per_head > BLOCK // 2:
            layout = Layout(element, 1, channels, over_block=True)
    else:
        offsets = [min(start, channels - held) for start in range(0, channels, held)]
        starts = [(head, head * channels + offset) for head in range(heads) for offset in offsets]
        layout = Layout(element, 1, held, stride=channels)
    subteams = min(layout.most_lanes // layout.lanes, degree)
    batch = max(1, min(LARGEST_BATCH, in_flight // (layout.values * max(1, rows))))
    tiles = torch.tensor([number for start in starts for number in start], device=device)
    return Tiling(dataclasses.replace(layout, subteams=subteams, batch=batch), tiles)


def _share(element: str, channels: int, most: int, overlapping: bool) -> int:
    """Channels of each tile of a head: all where these are not too many, or no even part of them is wide enough."""
    if channels <= most:
        return channels
    if overlapping:
        return _even_share(channels, most, Layout(element, 1, channels).vector)
    shares = (channels // tiles for tiles in range(-(-channels // most), channels + 1) if channels % tiles == 0)
    share = next(shares)
    return share if share * NARROWEST_SHARE >= most else channels


def _even_share(channels: int, most: int, vector: int) -> int:
    """Channels of each of as few tiles as may be, all alike: whole vectors.

    Example:
        >>> _even_share(602, 512, 2), _even_share(520, 512, 4), _even_share(1024, 512, 4)
        (302, 260, 512)
    """
    tiles = -(-channels // most)
    return -(-channels // (tiles * vector)) * vector


def typical_degree(mean: float) -> int:
    """The largest power of two that is not above the mean degree, at most a warp's lanes."""
    return 1 << max(0, min(WARP, int(mean)).bit_length() - 1)


def parts_of(csr: Csr, row_bytes: int) -> Cut:
    """The parts of a graph's edges: what a team takes at a time.

    They follow from the graph alone. What `pygfuse.force_mapping` forces holds here too, except that edges are never
    scattered: sorting them on a GPU costs less than atomic additions. So do the sizes of `pygfuse.group_sizes`.

    Args:
        csr: The edges by row.
        row_bytes: Bytes of a row of channels.
    """
    chosen = forced()
    work = csr.num_edges + csr.num_rows
    part_work = max(SMALLEST_PART, min(LARGEST_PART, work // PARTS_WANTED))
    if chosen is None:
        group_size = with_group_size(Mapping(VERTEX_BALANCED, part_work), csr, row_bytes).part_work
        # at most a part a row, so that partial states have the size of nodes
        part_work = max(group_size, min(part_work, -(-work // max(csr.num_rows, 1))))
    elif chosen.part_work != PART_WORK:
        part_work = chosen.part_work
    is_edge_balanced = chosen is not None and chosen.balance == EDGE_BALANCED
    return cut(csr, Mapping(EDGE_BALANCED if is_edge_balanced else VERTEX_BALANCED, part_work), PARTS_LIMIT)
