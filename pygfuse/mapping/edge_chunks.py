"""Chunks: runs of edges by target, whose values are worked on together."""

from __future__ import annotations

import dataclasses

import torch

from pygfuse.graph.csr import Csr

# of the widest value of a chunk
CHUNK_BYTES = 2**20
# below so many, what a chunk costs in calls is more than wide values in a cache save
LEAST_EDGES = 1024
# float32 loses digits in the long sums of a larger chunk
MOST_EDGES = 8192


@dataclasses.dataclass(frozen=True)
class EdgeChunk:
    """The edges `first` to `last` (exclusive) by target, which lie in the rows `row` to `row + rows`."""

    first: int
    last: int
    row: int
    rows: int

    @property
    def edges(self) -> int:
        return self.last - self.first


def chunk_size(value_bytes: int, most: int | None = None) -> int:
    """How many edges a chunk has, so that it stays in a core's cache.

    Args:
        value_bytes: Bytes of an edge in the widest value.
        most: How many edges it has at most, if fewer than usual.
    """
    most = MOST_EDGES if most is None else most
    return min(most, max(LEAST_EDGES, CHUNK_BYTES // max(1, value_bytes)))


def chunks_of(csr: Csr, size: int) -> list[EdgeChunk]:
    """All edges in chunks of at most `size`."""
    firsts = torch.arange(0, csr.num_edges, size, dtype=csr.indptr.dtype)
    lasts = (firsts + size).clamp(max=csr.num_edges)
    begins = torch.searchsorted(csr.indptr, firsts, right=True) - 1
    ends = torch.searchsorted(csr.indptr, lasts)
    found = zip(firsts.tolist(), lasts.tolist(), begins.tolist(), ends.tolist(), strict=True)
    return [EdgeChunk(first, last, begin, end - begin) for first, last, begin, end in found]
