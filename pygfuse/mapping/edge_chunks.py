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
# on a GPU, where sums are many short ones: what keeps all of its multiprocessors busy
GPU_CHUNK_BYTES, GPU_LEAST_EDGES, GPU_MOST_EDGES = 2**25, 2**14, 2**19


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


def chunk_size(value_bytes: int, kind: str, most: int | None = None) -> int:
    """How many edges a chunk has: on a CPU it stays in a core's cache.

    Args:
        value_bytes: Bytes of an edge in the widest value.
        kind: The kind of device.
        most: How many edges it has at most on a CPU, if fewer than usual.
    """
    if kind != 'cpu':
        return min(GPU_MOST_EDGES, max(GPU_LEAST_EDGES, GPU_CHUNK_BYTES // max(1, value_bytes)))
    most = MOST_EDGES if most is None else most
    return min(most, max(LEAST_EDGES, CHUNK_BYTES // max(1, value_bytes)))


def chunks_of(csr: Csr, size: int) -> list[EdgeChunk]:
    """All edges in chunks of at most `size`; they are kept with the edges, as finding them makes the host wait."""
    return csr.memo.get_or_make(('chunks', size), lambda: _chunks_of(csr, size))


def _chunks_of(csr: Csr, size: int) -> list[EdgeChunk]:
    firsts = torch.arange(0, csr.num_edges, size, dtype=csr.indptr.dtype, device=csr.indptr.device)
    lasts = (firsts + size).clamp(max=csr.num_edges)
    begins = torch.searchsorted(csr.indptr, firsts, right=True) - 1
    ends = torch.searchsorted(csr.indptr, lasts)
    found = zip(firsts.tolist(), lasts.tolist(), begins.tolist(), ends.tolist(), strict=True)
    return [EdgeChunk(first, last, begin, end - begin) for first, last, begin, end in found]
