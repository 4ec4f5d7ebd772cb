"""Values of edges that a network's last map makes of a row: scores of links and of attention."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.utils import softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, random_edges

WIDTH, OF_EDGES = 12, 3
WEIGHED = {
    'softmax': lambda score, x_j, index: softmax(score, index) * x_j,
    'gate': lambda score, x_j, index: score.sigmoid() * x_j,
    'as it is': lambda score, x_j, index: score * x_j,
    'two scores': lambda score, x_j, index: score.tanh() * x_j + score.square(),
}
ACTIVATIONS = {'relu': nn.ReLU, 'silu': nn.SiLU, 'tanh': nn.Tanh}


class Scored(Own):
    """A message that is weighed by a network of both ends, and of what the edge holds."""

    def __init__(self, how, bias=True, activation='relu', aggr='sum', of_edges=0):
        super().__init__(aggr)
        self.weighed, self.of_edges = WEIGHED[how], of_edges
        first = nn.Linear(2 * WIDTH + of_edges, 2 * WIDTH)
        self.nn = nn.Sequential(first, ACTIVATIONS[activation](), nn.Linear(2 * WIDTH, 1, bias))

    def message(self, x_i, x_j, index, edge_attr=None):
        parts = [x_i, x_j, edge_attr] if self.of_edges else [x_i, x_j]
        return self.weighed(self.nn(torch.cat(parts, dim=-1)), x_j, index)


class Links(nn.Module):
    """Scores of links, once nodes have gathered what such scores weigh."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        self.score = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1, bias=False))

    def forward(self, x, edge_index):
        row, col = edge_index
        weight = self.weight(torch.cat([x[row], x[col]], dim=-1)).sigmoid()
        h = torch.zeros_like(x).index_add_(0, col, weight * x[row])
        return self.score(torch.cat([h[row], h[col]], dim=-1)).squeeze(-1)


def arguments(edge_index, edge_attr=True):
    nodes = int(edge_index.max()) + 1
    given = {'edge_index': edge_index, 'x': torch.randn(nodes, WIDTH)}
    return {**given, 'edge_attr': torch.randn(edge_index.shape[1], OF_EDGES)} if edge_attr else given


@pytest.mark.parametrize('graph', ['random', 'hub', 'repeated edges'])
@pytest.mark.parametrize('how', WEIGHED)
def test_outputs_and_gradients_are_those_of_pyg(how, graph):
    torch.manual_seed(0)
    assert_as_pyg(Scored(how, of_edges=OF_EDGES), arguments(GRAPHS[graph]().edge_index))


@pytest.mark.parametrize('aggr', ['mean', 'max'])
@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('activation', ACTIVATIONS)
def test_options_of_the_network(activation, bias, aggr):
    torch.manual_seed(0)
    conv = Scored('gate', bias, activation, aggr)
    assert_as_pyg(conv, arguments(random_edges(20, 20, 130), edge_attr=False))


def test_scores_are_walks():
    """No row of an edge is written: the network's values are numbers of a walk."""
    torch.manual_seed(0)
    conv = pygfuse.compile(Scored('softmax'))
    conv(**arguments(random_edges(20, 20, 130), edge_attr=False))
    text = str(pygfuse.explain(conv))
    assert 'walk: values of edges' in text
    assert 'network' not in text


def test_maps_of_maps_are_networks():
    torch.manual_seed(0)
    conv = Scored('gate')
    conv.nn.insert(2, nn.Linear(2 * WIDTH, 2 * WIDTH))
    conv.nn.insert(3, nn.ReLU())
    assert_as_pyg(conv, arguments(random_edges(20, 20, 130), edge_attr=False))
    assert 'network' in str(pygfuse.explain(conv))


def test_what_was_aggregated_before_is_left_as_it_is():
    """A map to one number further up is in a form of its own, once."""
    torch.manual_seed(0)
    module, x, edge_index = Links(), torch.randn(20, WIDTH), random_edges(20, 20, 130)
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(x, edge_index), module(x, edge_index))
    assert compiled.note.reason is None
    (plan,) = compiled.plans()
    assert [node.op for node in plan.steps].count('reduce') == 1


def test_gradients_of_gradients():
    torch.manual_seed(0)
    conv = pygfuse.compile(Scored('gate', activation='tanh').double())
    edge_index = random_edges(6, 6, 15)
    x = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: conv(edge_index, x=x), (x,))
    assert torch.autograd.gradgradcheck(lambda x: conv(edge_index, x=x), (x,))
    assert conv.note.reason is None
