from __future__ import annotations

import pytest
import torch

from pygfuse.graph.graph import Graph
from pygfuse.mapping.edge_chunks import LEAST_EDGES, MOST_EDGES, MOST_PRODUCT_BYTES, chunk_size_of_sums, chunks_of


@pytest.mark.parametrize('size', [1, 2, 4, 9, 100])
def test_chunks_hold_every_edge_once_and_know_their_rows(size):
    # rows of 3, 0, 5, 0 and 1 edges
    edges = torch.tensor([[0, 1, 2, 0, 1, 2, 1, 0, 2], [0, 0, 0, 2, 2, 2, 2, 2, 4]])
    csr = Graph.of(edges, num_sources=3, num_targets=6).csr
    chunks, rows = chunks_of(csr, size), csr.rows()
    assert torch.cat([torch.arange(chunk.first, chunk.last) for chunk in chunks]).tolist() == list(range(9))
    for chunk in chunks:
        held = rows[chunk.first : chunk.last]
        assert (chunk.row, chunk.row + chunk.rows - 1) == (int(held[0]), int(held[-1]))
        assert chunk.edges <= size


def test_a_chunk_whose_edges_have_rows_of_products_holds_few_of_them():
    assert chunk_size_of_sums(4, 4, 1) == MOST_EDGES
    for product_bytes in (2**14, 2**15, 2**20):
        size = chunk_size_of_sums(4, product_bytes, 10**6)
        assert LEAST_EDGES <= size <= max(LEAST_EDGES, MOST_PRODUCT_BYTES // product_bytes)
