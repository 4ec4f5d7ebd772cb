"""Chunks: runs of edges by target, whose values are worked on together."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from pygfuse.graph.csr import Csr

# of the widest value of a chunk
CHUNK_BYTES = 2**20
# below so many, what a chunk costs in calls is more than wide values in a cache save
LEAST_EDGES = 1024
# float32 loses digits in the long sums of a larger chunk
MOST_EDGES = 8192
# of products that are added up by row: a chunk whose edges have a row each holds no more
MOST_PRODUCT_BYTES = 2**26
# of wide values of edges: up to so many are kept for kernels; beyond, operators on chunks keep none
MOST_KEPT_BYTES = 2**32
# of what normalisations over edges read and give: up to so many, it is kept rather than computed several times
MOST_NORMALISED_BYTES = 2**27


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


def chunk_size_of_sums(value_bytes: int, product_bytes: int, edges_a_row: int) -> int:
    """How many edges a chunk has whose products are added up by row.

    Args:
        value_bytes: As of `chunk_size`.
        product_bytes: Bytes of all products of an edge.
        edges_a_row: Edges of a row on average.

    Example:
        >>> chunk_size_of_sums(256, 8320, 30), chunk_size_of_sums(256, 8320, 2), chunk_size(8320)
        (3785, 1024, 1024)
    """
    size = chunk_size(max(value_bytes, product_bytes // max(edges_a_row, 1)))
    return min(size, max(LEAST_EDGES, MOST_PRODUCT_BYTES // product_bytes))


def are_too_many_to_keep(num_edges: int, row_bytes: int) -> bool:
    """Whether wide values of edges take so much memory that they are rather computed twice, on chunks of edges.

    Example:
        >>> are_too_many_to_keep(1_000_000, 512), are_too_many_to_keep(100_000_000, 512)
        (False, True)
    """
    return num_edges * row_bytes > MOST_KEPT_BYTES


def are_many_to_keep(num_edges: int, row_bytes: int) -> bool:
    """Whether what a normalisation over edges reads and gives takes so much memory that it is rather computed again.

    Example:
        >>> are_many_to_keep(100_000, 1024), are_many_to_keep(1_000_000, 1024)
        (False, True)
    """
    return num_edges * row_bytes > MOST_NORMALISED_BYTES


def chunks_of(csr: Csr, size: int) -> list[EdgeChunk]:
    """All edges in chunks of at most `size`; they are kept with the edges, as finding them makes the host wait."""
    return csr.memo.get_or_make(('chunks', size), lambda: _chunks_of(csr, size))


def rows_of(csr: Csr, chunk: EdgeChunk) -> Tensor:
    """The row of each edge of a chunk, ``[edges]``, int64."""
    counts = csr.indptr[chunk.row : chunk.row + chunk.rows + 1].clamp(chunk.first, chunk.last).diff()
    rows = torch.arange(chunk.row, chunk.row + chunk.rows, device=counts.device)
    return rows.repeat_interleave(counts, output_size=chunk.edges)


def _chunks_of(csr: Csr, size: int) -> list[EdgeChunk]:
    firsts = torch.arange(0, csr.num_edges, size, dtype=csr.indptr.dtype, device=csr.indptr.device)
    lasts = (firsts + size).clamp(max=csr.num_edges)
    begins = torch.searchsorted(csr.indptr, firsts, right=True) - 1
    ends = torch.searchsorted(csr.indptr, lasts)
    found = zip(firsts.tolist(), lasts.tolist(), begins.tolist(), ends.tolist(), strict=True)
    return [EdgeChunk(first, last, begin, end - begin) for first, last, begin, end in found]
