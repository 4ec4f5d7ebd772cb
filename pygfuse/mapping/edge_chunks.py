"""Chunks: runs of edges by target, whose values are worked on together."""

from __future__ import annotations

import dataclasses

import torch

from pygfuse.graph.csr import Csr


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


def chunks_of(csr: Csr, size: int) -> list[EdgeChunk]:
    """All edges in chunks of at most `size`."""
    firsts = torch.arange(0, csr.num_edges, size, dtype=csr.indptr.dtype)
    lasts = (firsts + size).clamp(max=csr.num_edges)
    begins = torch.searchsorted(csr.indptr, firsts, right=True) - 1
    ends = torch.searchsorted(csr.indptr, lasts)
    found = zip(firsts.tolist(), lasts.tolist(), begins.tolist(), ends.tolist(), strict=True)
    return [EdgeChunk(first, last, begin, end - begin) for first, last, begin, end in found]
