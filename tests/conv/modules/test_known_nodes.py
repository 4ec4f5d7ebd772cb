"""Modules that hold a row for each node, or know how many there are: their plans are for as many."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.utils import degree, scatter

import pygfuse
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules.arguments import assert_same, given

USERS = 18


class Propagated(nn.Module):
    """Embeddings of nodes, averaged over their neighbourhoods (LightGCN)."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(NODES, WIDTH)

    def forward(self, edge_index):
        x = self.embedding.weight
        row, col = edge_index
        scale = degree(col, NODES).to(x.dtype).clamp(min=1).pow(-0.5)
        norm = scale[row] * scale[col]
        found = [x]
        for _ in range(2):
            x = torch.zeros_like(x).index_add_(0, col, x[row] * norm.view(-1, 1))
            found.append(x)
        return torch.stack(found).mean(0)


class UsersAndItems(nn.Module):
    """The same of two embeddings under each other, which are given back apart."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH), nn.Embedding(NODES - USERS, WIDTH)

    def forward(self, edge_index, edge_weight):
        x = torch.cat([self.users.weight, self.items.weight])
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight, (NODES, NODES))
        users, items = torch.split(matrix @ x + x, [USERS, NODES - USERS])
        return users, items.tanh()


class OfEachNode(nn.Module):
    """A bias of each node, a layer that holds how many there are, and the nodes of graphs that are as large."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(NODES, WIDTH))
        self.num_nodes = NODES

    def forward(self, x, edge_index):
        row, col = edge_index
        x = (x + self.bias).sin()
        largest = torch.full((self.num_nodes, WIDTH), -1.0, dtype=x.dtype)
        largest.scatter_reduce_(0, col.unsqueeze(-1).expand(-1, WIDTH), x[row] * x[col], 'amax')
        onto = torch.ones(self.num_nodes, WIDTH, dtype=x.dtype).index_add_(0, row, x[col])
        mean = onto + scatter(x[row] - x[col], col, dim=0, dim_size=self.num_nodes, reduce='mean')
        return (largest + mean).view(3, self.num_nodes // 3, WIDTH).sum(dim=1)


class LoopsOfNodes(nn.Module):
    """Weights of edges, and of loops those that it holds: a parameter of edges, though there are as many as nodes."""

    def __init__(self):
        super().__init__()
        self.of_loops = nn.Parameter(torch.rand(NODES))

    def forward(self, x, edge_index, edge_weight):
        loops = torch.arange(x.size(0)).repeat(2, 1)
        row, col = torch.cat([edge_index, loops], dim=1)
        weight = torch.cat([edge_weight, self.of_loops])
        return torch.zeros_like(x).index_add_(0, col, x[row] * weight.unsqueeze(-1))


ARGUMENTS = {
    LoopsOfNodes: ('x', 'edge_index', 'edge_weight'),
    Propagated: ('edge_index',), UsersAndItems: ('edge_index', 'edge_weight'), OfEachNode: ('x', 'edge_index'),
}  # fmt: skip


@pytest.mark.parametrize('kind', ARGUMENTS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), {name: given()[name] for name in ARGUMENTS[kind]})


class Cut(nn.Module):
    """A part of the nodes."""

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add_(0, col, x[row].sin())[12:]


def test_each_number_of_nodes_has_a_plan():
    compiled = pygfuse.compile(Cut())
    for nodes in (30, 40, 30, 40, 50):
        arguments = [given(nodes=nodes)[name] for name in ('x', 'edge_index')]
        torch.testing.assert_close(compiled(*arguments), Cut()(*arguments))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 3


def test_rows_of_other_nodes_than_there_are():
    """A parameter has a row for each node of one call only: torch's error is that of its own code."""
    module = OfEachNode()
    compiled = pygfuse.compile(copy.deepcopy(module))
    data = given()
    compiled(data['x'], data['edge_index'])
    more = given(nodes=NODES + 3)
    for one in (module, compiled):
        with pytest.raises(RuntimeError, match='must match the size of tensor b'):
            one(more['x'], more['edge_index'])
    torch.testing.assert_close(compiled(data['x'], data['edge_index']), module(data['x'], data['edge_index']))
    assert compiled.note.reason is None


def test_indices_of_more_nodes_than_it_holds():
    module = Propagated()
    compiled = pygfuse.compile(copy.deepcopy(module))
    compiled(given()['edge_index'])
    for one in (module, compiled):
        with pytest.raises(IndexError):
            one(torch.tensor([[0, NODES], [1, 2]]))


def test_nothing_tells_how_many_nodes_there_are():
    class Nothing(nn.Module):
        def forward(self, edge_index):
            return torch.zeros(5).index_add_(0, edge_index[1], edge_index[0].float())

    compiled = pygfuse.compile(Nothing())
    edge_index = torch.randint(5, (2, 20))
    torch.testing.assert_close(compiled(edge_index), Nothing()(edge_index))
    assert compiled.note.reason == 'nothing tells the number of nodes'
