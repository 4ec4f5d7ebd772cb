from __future__ import annotations

import pytest
import torch

from pygfuse.cpu import edge_chunks
from pygfuse.graph.graph import Graph
from pygfuse.mapping.edge_chunks import chunks_of

# rows of 3, 0, 5, 0 and 1 edges
EDGES = torch.tensor([[0, 1, 2, 0, 1, 2, 1, 0, 2], [0, 0, 0, 2, 2, 2, 2, 2, 4]])
CSR = Graph.of(EDGES, num_sources=3, num_targets=6).csr
WIDTH = 6


@pytest.mark.parametrize('size', [1, 2, 4, 9])
def test_of_equal_values_the_first_edge_wins(size):
    values = torch.tensor([1.0, 2, 2, 5, 3, 5, 4, 5, -1], dtype=torch.float64).unsqueeze(1).repeat(1, WIDTH)
    out, winners = torch.zeros(2, 6, WIDTH, dtype=torch.float64)
    for chunk in chunks_of(CSR, size):
        edge_chunks.keep_largest(CSR, chunk, values[chunk.first : chunk.last].clone(), out, winners)
    assert out[:, 0].tolist() == [2, 0, 5, 0, -1, 0]
    assert winners[:, 0].tolist() == [1, 0, 0, 0, 0, 0]
    spread = torch.empty(9, WIDTH, dtype=torch.float64)
    for chunk in chunks_of(CSR, size):
        edge_chunks.spread(CSR, chunk, out, winners, spread[chunk.first : chunk.last])
    assert spread[:, 0].tolist() == [0, 2, 0, 5, 0, 0, 0, 0, -1]


def test_not_a_number_and_infinity_spread():
    values = torch.zeros(9, WIDTH, dtype=torch.float64)
    values[1], values[4], values[8] = float('nan'), float('inf'), -float('inf')
    out, winners = torch.zeros(2, 6, WIDTH, dtype=torch.float64)
    for chunk in chunks_of(CSR, 2):
        edge_chunks.keep_largest(CSR, chunk, values[chunk.first : chunk.last].clone(), out, winners)
    assert out[0].isnan().all()
    assert out[2].isposinf().all()
    assert out[4].isneginf().all()
    assert winners[2, 0] == 1
