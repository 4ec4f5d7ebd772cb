"""How often a gather finds its row in a cache when nodes are walked and numbered in an order, counted in samples."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.graph.csr import Csr
from pygfuse.transforms.renumbering import inverted

LINE_BYTES = 64
# what a core's cache and the next one hold; a gather that finds its row in neither costs three times one that finds it
# in the first (docs/performance-notes.md)
NEAR_BYTES, FAR_BYTES = 2**20, 2**25
# windows that are looked at, places of a hash table for each line that one may hold, and places in all
WINDOWS, SLOTS_A_LINE, MOST_SLOTS = 64, 4, 2**22
EMPTY = -1


def gather_cost(csr: Csr, order: Tensor, row_bytes: int) -> float:
    """The estimated time of a gather, in that of one whose row is in a core's cache.

    Args:
        csr: Edges by target, of as many sources as targets.
        order: Which node comes at each place.
        row_bytes: Bytes of a row of features.
    """
    return 1.0 + sum(new_share(csr, order, row_bytes, window) for window in (NEAR_BYTES, FAR_BYTES))


def new_share(csr: Csr, order: Tensor, row_bytes: int, window_bytes: int) -> float:
    """Of gathers, how many are of memory that those just before, as many as a cache holds, were not of.

    Args:
        csr, order, row_bytes: As of `gather_cost`.
        window_bytes: Bytes of the cache.

    Example:
        >>> csr = Csr(torch.arange(101), torch.zeros(100, dtype=torch.int64), None)
        >>> new_share(csr, torch.arange(100), 256, 2560)
        0.1
    """
    gathers = max(1, window_bytes // max(row_bytes, LINE_BYTES))
    ends = csr.indptr.diff().long()[order].cumsum(0)
    num_edges = int(ends[-1]) if len(ends) else 0
    slots = 1 << (SLOTS_A_LINE * gathers - 1).bit_length()
    windows = max(1, min(WINDOWS, MOST_SLOTS // slots, num_edges // gathers))
    starts = torch.searchsorted(ends, torch.arange(windows) * num_edges // windows, right=True)
    table = torch.full((windows * slots,), EMPTY, dtype=torch.int32)
    found, rows_a_line = torch.zeros(2 * windows, dtype=torch.int64), max(1, LINE_BYTES // row_bytes)
    given = starts, order, inverted(order), csr.indptr, csr.index
    _count_new(windows, *given, gathers, rows_a_line, slots, table, found)
    new, seen = found.view(windows, 2).sum(0).tolist()
    return new / max(seen, 1)


def _count_new_of_window(part, starts, order, place_of, indptr, index, gathers, rows_a_line, slots, table, found):
    """Counts gathers from one row on, and those of lines that no gather of this window was of before."""
    base, last_slot = part * slots, slots - 1
    new, seen, place = 0, 0, starts[part]
    while seen < gathers and place < len(order):
        node = order[place]
        for q in range(indptr[node], min(indptr[node + 1], indptr[node] + gathers - seen)):
            line = place_of[index[q]] // rows_a_line
            slot = (line * 0x9E3779B1) & last_slot
            while table[base + slot] != line and table[base + slot] != EMPTY:
                slot = (slot + 1) & last_slot
            if table[base + slot] == EMPTY:
                table[base + slot] = line
                new += 1
        seen += min(indptr[node + 1] - indptr[node], gathers - seen)
        place += 1
    found[2 * part] = new
    found[2 * part + 1] = seen


_count_new = Kernel(_count_new_of_window, 'the locality of gathers')
