"""Who is given a result may write into it, whatever backward reads of it: ``out += bias``, ``out.relu_()``."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.bench.compiled_layers import layers
from tests.support.parity import GRAPHS, random_edges


class Attention(MessagePassing):
    """Attention of one's own, whose bias is added in place."""

    def __init__(self, stores=False):
        super().__init__(aggr='add')
        self.lin, self.score = torch.nn.Linear(16, 16), torch.nn.Linear(32, 1)
        self.bias, self.stores = torch.nn.Parameter(torch.randn(16)), stores

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=self.lin(x))
        out += self.bias
        return out

    def message(self, x_i, x_j, index, size_i):
        alpha = softmax(F.leaky_relu(self.score(torch.cat([x_i, x_j], dim=-1))), index, num_nodes=size_i)
        if self.stores:
            self.alpha = alpha
        return alpha * x_j


class Network(MessagePassing):
    def __init__(self):
        super().__init__(aggr='add')
        self.nn = torch.nn.Sequential(torch.nn.Linear(33, 16), torch.nn.SiLU(), torch.nn.Linear(16, 16))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        distance = (x_i - x_j + 0.1).norm(dim=-1, keepdim=True)
        return self.nn(torch.cat([x_i, x_j, distance], dim=-1))


LAYERS = {
    'GAT': lambda: pyg.GATConv(16, 8, heads=2, bias=False),
    'GAT, one head for all': lambda: pyg.GATConv(16, 8, heads=2, concat=False, bias=False),
    'GATv2': lambda: pyg.GATv2Conv(16, 16, bias=False),
    'transformer': lambda: pyg.TransformerConv(16, 16, root_weight=False, bias=False),
    'AGNN': lambda: pyg.AGNNConv(),
    'SuperGAT': lambda: pyg.SuperGATConv(16, 16, bias=False).eval(),
    'softmax': lambda: pyg.SimpleConv('softmax'),
    'sum': lambda: pyg.SimpleConv('sum'),
    'ResGated': lambda: pyg.ResGatedGraphConv(16, 16, root_weight=False, bias=False),
    'attention': Attention,
    'attention that stores its weights': lambda: Attention(True),
    'network': Network,
}


def results(conv, x, edge_index, is_in_place):
    x = x.clone().requires_grad_()
    out = conv(x, edge_index)
    out = out.add_(1.0).mul_(2.0) if is_in_place else (out + 1.0) * 2.0
    parameters = [x, *(p for p in conv.parameters() if p.requires_grad)]
    return torch.autograd.grad(out.sin().sum(), parameters, allow_unused=True)


@pytest.mark.parametrize('graph', ['random', 'hub', 'isolated nodes'])
@pytest.mark.parametrize('few', [False, True], ids=['sorted', 'as they come'])
@pytest.mark.parametrize('name', LAYERS)
def test_gradients_are_those_of_a_result_that_is_left(name, few, graph, request):
    if few:
        request.getfixturevalue('at_once')
    torch.manual_seed(0)
    conv, example = LAYERS[name]().double(), GRAPHS[graph]()
    fused = pygfuse.fuse(copy.deepcopy(conv))
    x = torch.randn(example.num_sources, 16, dtype=torch.float64)
    for _ in range(3):
        wanted = results(conv, x, example.edge_index, False)
        for is_in_place in (True, False):
            found = results(fused, x, example.edge_index, is_in_place)
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-4)


@pytest.mark.usefixtures('at_once')
@pytest.mark.parametrize('name', ['EGNN, own message', 'SchNet, own message'])
def test_networks_along_several_parts_of_few_edges(name):
    torch.manual_seed(0)
    layer, edge_index = layers()[name], random_edges(300, 300, 6000)
    x, found = torch.randn(300, layer.channels, requires_grad=True), []
    given, conv = layer.given(x, edge_index), layer.make()
    for one in (conv, pygfuse.fuse(copy.deepcopy(conv))):
        for _ in range(3):
            out = one(**given)
            out = (out[0] if isinstance(out, tuple) else out).add_(1.0)
            (of_x,) = torch.autograd.grad(out.square().sum(), x)
        found.append(of_x)
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3 * float(found[0].abs().max()))


@pytest.mark.parametrize('name', ['GAT', 'attention'])
def test_views_of_a_result(name):
    torch.manual_seed(0)
    conv, example = LAYERS[name]().double(), GRAPHS['random']()
    fused = pygfuse.fuse(copy.deepcopy(conv))
    x, found = torch.randn(60, 16, dtype=torch.float64), []
    for layer in (conv, fused):
        given = x.clone().requires_grad_()
        out = layer(given, example.edge_index)
        out.view(-1, 2, 8)[:, 0].relu_()
        found.append(torch.autograd.grad(out.square().sum(), given))
    torch.testing.assert_close(found[1], found[0])


class Links(torch.nn.Module):
    """Values of edges, by several forms, and of nodes."""

    def __init__(self):
        super().__init__()
        self.lin, self.score = torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = torch.zeros_like(x).index_add(0, col, self.lin(x)[row])
        scores = (h[row] * h[col]).sum(-1), F.cosine_similarity(h[row], h[col], dim=-1)
        return *scores, h[row].sigmoid() * h[col], self.score(F.silu(h[row] - h[col])).squeeze(-1), h


@pytest.mark.parametrize('place', range(5))
@pytest.mark.parametrize('edges', [300, 9_000])
def test_values_of_edges_that_are_written_to(place, edges):
    torch.manual_seed(0)
    x, edge_index, own = torch.randn(200, 16, requires_grad=True), random_edges(200, 200, edges), Links()
    found = []
    for module in (own, pygfuse.compile(copy.deepcopy(own))):
        out = module(x, edge_index)[place]
        out.mul_(2)
        found.append((out, *torch.autograd.grad(out.square().sum(), x)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)
