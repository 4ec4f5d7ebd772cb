"""SchNet's convolution, alone and in PyG's model: energies, forces, and filters that are never in memory."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.nn import BatchNorm1d, LayerNorm, Linear, Sequential, SiLU
from torch_geometric.nn.models import SchNet
from torch_geometric.nn.models.schnet import CFConv as PlainCFConv
from torch_geometric.nn.models.schnet import ShiftedSoftplus

import pygfuse
from pygfuse.conv import CFConv
from pygfuse.memory import saved_bytes
from tests.support.parity import GRAPHS, Parity, random_edges

IN, OUT, FILTERS, EDGE_DIM, CUTOFF = 8, 5, 6, 4, 3.0
PARITY = Parity(PlainCFConv, CFConv)
NETWORKS = {
    "SchNet's": lambda: Sequential(Linear(EDGE_DIM, FILTERS), ShiftedSoftplus(), Linear(FILTERS, FILTERS)),
    'a batch normalisation': lambda: Sequential(Linear(EDGE_DIM, FILTERS), BatchNorm1d(FILTERS), SiLU()),
    'another': lambda: Sequential(Linear(EDGE_DIM, 7, bias=False), SiLU(), Linear(7, FILTERS), SiLU()),
}


def options(nn) -> dict:
    return {'in_channels': IN, 'out_channels': OUT, 'num_filters': FILTERS, 'nn': nn, 'cutoff': CUTOFF}


def inputs(example) -> dict:
    edges = {'edge_weight': CUTOFF * example.edge_attr().sigmoid(), 'edge_attr': example.edge_attr(EDGE_DIM)}
    return {'x': example.x(IN), 'edge_index': example.edge_index, **edges}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges', 'no edges'])
@pytest.mark.parametrize('name', NETWORKS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    PARITY.check(options(NETWORKS[name]()), **inputs(GRAPHS[graph]()))


def test_another_network_runs_pyg_s_path():
    nn = Sequential(Linear(EDGE_DIM, FILTERS), LayerNorm(FILTERS), Linear(FILTERS, FILTERS))
    plain, fused = PARITY.make(options(nn))
    expected = plain(**inputs(GRAPHS['random']()))
    torch.testing.assert_close(fused(**inputs(GRAPHS['random']())), expected)
    assert fused.note.reason == 'nn.1 is a LayerNorm'


@pytest.mark.parametrize(('name', 'rows'), [('edge_weight', 'one number'), ('edge_attr', 'a row for each edge')])
def test_too_few_edges_are_named(name, rows):
    given = inputs(GRAPHS['random']())
    with pytest.raises(ValueError, match=f"Expected '{name}'.*{rows}"):
        CFConv(**options(NETWORKS['another']()))(**{**given, name: given[name][:-1]})


def test_filters_are_not_in_memory():
    conv = CFConv(**options(NETWORKS["SchNet's"]()))
    x = torch.randn(50, IN, requires_grad=True)

    def saved(num_edges: int) -> int:
        edges = random_edges(50, 50, num_edges), torch.rand(num_edges), torch.randn(num_edges, EDGE_DIM)
        return saved_bytes(lambda: conv(x, *edges), exclude=[x, *edges, *conv.parameters()])

    # the cut-off of each edge
    assert saved(4000) - saved(2000) <= 2000 * 4


def test_energies_and_forces_of_a_model():
    torch.manual_seed(0)
    plain = SchNet(16, 16, 2, 10, interaction_graph=lambda pos, batch: (edge_index, _lengths(pos, edge_index))).double()
    kinds, edge_index = torch.randint(1, 9, (12,)), random_edges(12, 12, 60)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    fused = pygfuse.fuse(copy.deepcopy(plain))
    found = []
    for model in (plain, fused):
        pos = torch.randn(12, 3, generator=torch.Generator().manual_seed(1)).double().requires_grad_()
        energy = model(kinds, pos)
        (forces,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        loss = energy.square().sum() + forces.square().sum()
        found.append([energy, forces, *torch.autograd.grad(loss, model.parameters(), allow_unused=True)])
    assert all(block.conv.note.reason is None for block in fused.interactions)
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-8)


def _lengths(pos: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    return (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)


def test_copies_pickles_and_the_way_back():
    plain = PlainCFConv(**options(NETWORKS["SchNet's"]()))
    given = inputs(GRAPHS['random']())
    expected = plain(**given)
    fused = pygfuse.fuse(plain)
    assert type(fused) is CFConv
    for conv in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        torch.testing.assert_close(conv(**given), expected)
    assert type(pygfuse.unfuse(fused)) is PlainCFConv
