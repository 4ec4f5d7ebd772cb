from __future__ import annotations

import pytest
import torch
import torch_geometric.nn
from parity import random_edges

import pygfuse
import pygfuse.conv
from pygfuse.memory import peak_bytes, saved_bytes

FEATURES, HEADS, CHANNELS = 16, 4, 8
# name of a class in both packages, options of its constructor
CONVS = [
    ('GATConv', {'out_channels': CHANNELS, 'heads': HEADS}),
    ('GATConv', {'out_channels': CHANNELS, 'heads': HEADS, 'add_self_loops': False}),
    ('GATConv', {'out_channels': CHANNELS, 'heads': HEADS, 'dropout': 0.5}),
    ('GATConv', {'out_channels': CHANNELS, 'heads': HEADS, 'aggr': 'mean', 'concat': False, 'residual': True}),
]


@pytest.mark.parametrize(('name', 'options'), CONVS, ids=str)
def test_what_is_saved_does_not_grow_with_edges(name, options):
    conv = getattr(pygfuse.conv, name)(FEATURES, **options)
    x = torch.randn(100, FEATURES, requires_grad=True)
    saved = []
    for num_edges in (1000, 2000):
        edge_index = random_edges(100, 100, num_edges)
        saved.append(saved_bytes(lambda edges=edge_index: conv(x, edges), exclude=[edge_index]))
    assert conv.last_reason is None
    assert saved[0] == saved[1]
    # the measure sees what PyG keeps
    pygfuse.unfuse(conv)
    assert saved_bytes(lambda: conv(x, edge_index)) > saved[0] + 2000 * HEADS * CHANNELS * 4


@pytest.mark.parametrize('loops', [True, False])
def test_edge_features_are_all_that_grows_with_edges(loops):
    conv = pygfuse.conv.GATConv(FEATURES, CHANNELS, heads=HEADS, edge_dim=3, add_self_loops=loops)
    x = torch.randn(100, FEATURES)
    saved = []
    for num_edges in (1000, 2000):
        edge_index, edge_attr = random_edges(100, 100, num_edges), torch.randn(num_edges, 3)
        step = [edge_index, edge_attr]
        saved.append(saved_bytes(lambda step=step: conv(x, *step), exclude=step))
    # one number for an edge and head, to the operator and (with loops) from what they are filled with
    assert saved[1] - saved[0] <= 1000 * HEADS * 4 * (2 if loops else 1)


def _power_law_edges(num_nodes: int, num_edges: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    weights = torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -0.7
    ends = [torch.multinomial(weights, num_edges, replacement=True, generator=generator) for _ in range(2)]
    return torch.stack(ends)


@pytest.mark.slow
def test_the_peak_of_a_step_is_a_tenth_of_that_of_pyg():
    torch.manual_seed(0)
    edge_index = _power_law_edges(11_758, 1_040_000)
    x = torch.randn(11_758, 64)
    fused = pygfuse.conv.GATConv(64, 16, heads=4)
    pyg = torch_geometric.nn.GATConv(64, 16, heads=4)

    def peak(conv) -> int:
        def step():
            conv.zero_grad(set_to_none=False)
            conv(x, edge_index).sum().backward()

        return peak_bytes(step, warmup=1)

    assert 10 * peak(fused) <= peak(pyg)
