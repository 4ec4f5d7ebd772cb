"""NNConv beyond what the tests of all convolutions ask: its network, and matrices that are never made."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, Linear, PReLU, ReLU, Sequential, Tanh

from pygfuse.conv import NNConv
from pygfuse.memory import peak_bytes, saved_bytes
from tests.support.parity import GRAPHS, Parity, random_edges

IN, OUT, EDGE_DIM = 8, 4, 3
PARITY = Parity(pyg.NNConv, NNConv)
NETWORKS = {
    'a map': lambda: Linear(EDGE_DIM, IN * OUT),
    'a map without a bias': lambda: Linear(EDGE_DIM, IN * OUT, bias=False),
    'three maps': lambda: Sequential(
        Linear(EDGE_DIM, 6), Tanh(), Linear(6, 5, bias=False), PReLU(5), Linear(5, IN * OUT)
    ),
    "PyG's MLP": lambda: pyg.MLP([EDGE_DIM, 6, IN * OUT], norm=None, act='silu'),
    'a batch normalisation': lambda: Sequential(Linear(EDGE_DIM, 5), BatchNorm1d(5), ReLU(), Linear(5, IN * OUT)),
}


@pytest.mark.parametrize('graph', ['random', 'bipartite, more sources', 'isolated nodes', 'no edges'])
@pytest.mark.parametrize('aggr', ['add', 'mean'])
@pytest.mark.parametrize('name', NETWORKS)
def test_networks(name, aggr, graph):
    example = GRAPHS[graph]()
    options = {'in_channels': (IN, IN), 'out_channels': OUT, 'nn': NETWORKS[name](), 'aggr': aggr}
    inputs = {'x': example.x(IN), 'edge_index': example.edge_index, 'edge_attr': example.edge_attr(EDGE_DIM)}
    PARITY.check(options, **inputs)


def test_another_network_runs_pyg_s_path():
    nn = Sequential(Linear(EDGE_DIM, IN * OUT), ReLU())
    plain, fused = PARITY.make({'in_channels': IN, 'out_channels': OUT, 'nn': nn})
    example = GRAPHS['random']()
    arguments = example.x(IN), example.edge_index, example.edge_attr(EDGE_DIM)
    torch.testing.assert_close(fused(*arguments), plain(*arguments))
    assert fused.note.reason == 'nn does not end with a Linear'


def test_a_network_of_another_width_is_named():
    example = GRAPHS['random']()
    with pytest.raises(ValueError, match=r"Expected 'nn' to give 32 values, a matrix for each edge \(got 30\)"):
        NNConv(IN, OUT, Linear(EDGE_DIM, 30))(example.x(IN), example.edge_index, example.edge_attr(EDGE_DIM))


def test_no_matrix_of_an_edge_is_in_memory(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.CHUNK_BYTES', 2**10)
    conv = NNConv(IN, OUT, NETWORKS['three maps']())
    x = torch.randn(100, IN, requires_grad=True)

    def measured(num_edges: int) -> tuple[int, int]:
        edge_index, edge_attr = random_edges(100, 100, num_edges), torch.randn(num_edges, EDGE_DIM)

        def step() -> None:
            x.grad = None
            conv.zero_grad()
            conv(x, edge_index, edge_attr).sum().backward()

        step()
        given = [x, edge_index, edge_attr, *conv.parameters()]
        return saved_bytes(lambda: conv(x, edge_index, edge_attr), exclude=given), peak_bytes(step, warmup=1)

    (saved, peak), (saved_of_more, peak_of_more) = measured(2000), measured(4000)
    assert saved_of_more == saved
    # of nodes that have more edges a chunk has fewer
    assert peak_of_more <= peak
