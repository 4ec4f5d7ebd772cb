"""Memory does not grow with the number of neighbours."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, LeakyReLU, Linear, Module

from pygfuse.conv import EdgeConv
from pygfuse.memory import peak_bytes, saved_bytes
from tests.support.edge_conv import FEATURES, WIDE, neighbours, one

NODES, CHANNELS = 600, 32
NETWORKS_OF_MEMORY = {
    'linear': lambda: Linear(WIDE, CHANNELS),
    'norm': lambda: one(BatchNorm1d(CHANNELS), LeakyReLU(0.2), width=CHANNELS),
    'two': lambda: pyg.MLP([WIDE, CHANNELS, CHANNELS]),
}
# tensors [nodes, channels] that are saved: both ends, the maximum and its ties; before it, for the statistics, both
# ends; of the second map both ends and the winners
SAVED_TENSORS = {'linear': 4, 'norm': 6, 'two': 5}


def measured(nn: Module, k: int) -> tuple[int, int]:
    conv = EdgeConv(nn)
    x, edge_index = torch.randn(NODES, FEATURES, requires_grad=True), neighbours(NODES, k)
    given_ = [x, edge_index, *conv.parameters(), *conv.buffers()]

    def step():
        x.grad = None
        conv.zero_grad()
        conv(x, edge_index).sum().backward()

    step()
    saved = saved_bytes(lambda: conv(x, edge_index), exclude=given_)
    assert conv.note.reason is None
    return saved, peak_bytes(step, warmup=1)


@pytest.mark.parametrize('name', NETWORKS_OF_MEMORY)
def test_memory_does_not_grow_with_neighbours(name, many_edges, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.CHUNK_BYTES', 2**16)
    (saved, peak), (saved_of_more, peak_of_more) = (measured(NETWORKS_OF_MEMORY[name](), k) for k in (20, 40))
    assert saved_of_more == saved
    assert peak_of_more == peak
    rows = NODES * CHANNELS * 4
    assert SAVED_TENSORS[name] * rows <= saved <= SAVED_TENSORS[name] * rows + 0.5 * rows
