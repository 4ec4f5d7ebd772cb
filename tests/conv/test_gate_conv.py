"""AttentiveFP's attention over features of edges, alone and in PyG's model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch_geometric.nn.models import AttentiveFP
from torch_geometric.nn.models.attentive_fp import GATEConv as PlainGATEConv

import pygfuse
from pygfuse.conv import GATEConv
from pygfuse.memory import saved_bytes
from tests.support.parity import GRAPHS, Parity, random_edges

# PyG's second map takes as many channels as it gives
IN, EDGE_DIM = 8, 3
PARITY = Parity(PlainGATEConv, GATEConv)
OPTIONS = {'in_channels': IN, 'out_channels': IN, 'edge_dim': EDGE_DIM}


def inputs(example) -> dict:
    return {'x': example.x(IN), 'edge_index': example.edge_index, 'edge_attr': example.edge_attr(EDGE_DIM)}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges', 'no edges', 'self-loops'])
def test_outputs_and_gradients_are_those_of_pyg(graph):
    PARITY.check(OPTIONS, **inputs(GRAPHS[graph]()))


def test_dropout_is_drawn_by_torch_s_seed():
    conv, found = PARITY.make({**OPTIONS, 'dropout': 0.5})[1], []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(conv(**inputs(GRAPHS['random']())))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    conv.eval()
    assert torch.equal(conv(**inputs(GRAPHS['random']())), conv(**inputs(GRAPHS['random']())))
    assert conv.note.reason is None


def test_gradients_of_gradients():
    conv = PARITY.make(OPTIONS)[1].double()
    x, edge_attr = (torch.randn(rows, width).double().requires_grad_() for rows, width in ((4, IN), (5, EDGE_DIM)))
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 2, 0, 1]])
    assert torch.autograd.gradgradcheck(lambda x, e: conv(x, edge_index, e), (x, edge_attr))


@pytest.mark.parametrize(('name', 'said'), [('x', 'of shape'), ('edge_attr', 'a row for each edge')])
def test_a_wrong_width_is_named(name, said):
    given = inputs(GRAPHS['random']())
    with pytest.raises(ValueError, match=f"Expected '{name}' .*{said}"):
        GATEConv(**OPTIONS)(**{**given, name: given[name][:, :-1]})


def test_saved_bytes_do_not_grow_with_edges():
    conv, x = GATEConv(**OPTIONS), torch.randn(50, IN, requires_grad=True)

    def saved(num_edges: int) -> int:
        edges = random_edges(50, 50, num_edges), torch.randn(num_edges, EDGE_DIM)
        return saved_bytes(lambda: conv(x, *edges), exclude=[x, *edges, *conv.parameters()])

    assert saved(4000) == saved(2000)


def test_the_model_of_pyg():
    torch.manual_seed(0)
    plain = AttentiveFP(IN, 16, 1, EDGE_DIM, num_layers=2, num_timesteps=2).double()
    fused = pygfuse.fuse(copy.deepcopy(plain))
    assert type(fused.gate_conv) is GATEConv
    given = [t.double() if t.is_floating_point() else t for t in inputs(GRAPHS['random']()).values()]
    batch = torch.zeros(60, dtype=torch.int64)
    torch.testing.assert_close(fused(*given, batch), plain(*given, batch))
    assert fused.gate_conv.note.reason is None
