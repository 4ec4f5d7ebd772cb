"""Layers of PyG's within modules, along edges that these make, or of which they give values."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.utils import add_self_loops, dropout_edge, remove_self_loops, to_undirected

import pygfuse
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, given
from tests.conv.modules.modules_of_layers import LAYERS, Gated, Wrapped, network, of_module


class Pairs(Wrapped):
    def forward(self, x, edge_index, y):
        h = self.layer((x, y), edge_index)
        return h + torch.zeros_like(y).index_add(0, edge_index[1], x[edge_index[0]])


class Turned(Wrapped):
    def forward(self, x, edge_index):
        h = self.layer(x, edge_index.flip(0))
        return h + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]].tanh())


class Looped(Wrapped):
    """A layer and what is gathered beside it are along the same edges that are made."""

    def forward(self, x, edge_index):
        edges, _ = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=x.size(0))
        h = self.layer(x, edges)
        return torch.zeros_like(h).index_add(0, edges[1], (h[edges[0]] - h[edges[1]]).abs())


class Undirected(Wrapped):
    """Both directions for the layer, with their values; those of the call for the rest."""

    def forward(self, x, edge_index, edge_attr):
        edges, values = to_undirected(edge_index, edge_attr, num_nodes=x.size(0), reduce='mean')
        h = self.layer(x, edges, edge_attr=values)
        h = self.layer(h, edge_index, edge_attr=edge_attr)
        message = h[edge_index[0]].tanh() * edge_attr.sum(dim=-1, keepdim=True)
        return torch.zeros_like(h).index_add(0, edge_index[1], message)


class Dropped(Wrapped):
    """Edges that are drawn: the same for the layer as for the rest."""

    def forward(self, x, edge_index):
        edges, _ = dropout_edge(edge_index, p=0.5, training=self.training)
        theirs = self.layer(x, edges)
        own = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]] * 3)
        return own - 3 * theirs


class Crossed(Wrapped):
    """Two sets of edges, of which the layer has the second."""

    def forward(self, x, edge_index, edge_index_2, edge_attr):
        edge_weight = edge_attr[:, :1]
        h = self.layer(x, edge_index_2, edge_weight.new_ones(edge_index_2.size(1)))
        other = torch.zeros_like(h).index_add(0, edge_index_2[1], h[edge_index_2[0]].tanh())
        return other + torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]] * edge_weight)


class Updated(Wrapped):
    """A layer along made edges returns their values, and is given others that the plan computes of them."""

    def forward(self, x, edge_index, edge_attr):
        edges, values = add_self_loops(edge_index, edge_attr, fill_value=0.5, num_nodes=x.size(0))
        values = torch.cat([x[edges[0]] - x[edges[1]], values], dim=-1)[:, -OF_EDGES:].tanh()
        x, values, _ = self.layer(x, edges, values)
        message = x[edges[0]] * values.sum(dim=-1, keepdim=True)
        return torch.zeros_like(x).index_add(0, edges[1], message.tanh())


class Twofold(Wrapped):
    """Of two sets of edges the layer returns values of one, and is given values that the plan computes of it."""

    def forward(self, x, edge_index, edge_index_2, edge_attr):
        h = torch.zeros_like(x).index_add(0, edge_index_2[1], x[edge_index_2[0]].tanh())
        values = edge_attr * (h[edge_index[0]] * x[edge_index[1]]).sum(dim=-1, keepdim=True)
        h, values, _ = self.layer(h, edge_index, values)
        message = h[edge_index[0]] * values.sum(dim=-1, keepdim=True)
        return torch.zeros_like(x).index_add(0, edge_index[1], message.tanh())


class Paired(Wrapped):
    """A layer is given what nodes decide, with a row for each edge."""

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.layer(x, edge_index, x[row][:, :OF_EDGES].tanh())
        return torch.zeros_like(h).index_add(0, col, h[row].tanh() * x[col])


class Table(pyg.MessagePassing):
    """A row of a table for each edge, of which there are two."""

    def __init__(self):
        super().__init__(aggr='add')
        self.table = nn.Embedding(2, WIDTH)

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, rows=self.table(edge_type))

    def message(self, x_j, rows):
        return (x_j + rows).relu()


class OfTable(Wrapped):
    def forward(self, x, edge_index, edge_type):
        h = self.layer(x, edge_index, edge_type)
        return h + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]].tanh())


class Sized(Wrapped):
    def forward(self, x, edge_index):
        h = self.layer(x, edge_index, size=(x.size(0), x.shape[0]))
        return h + torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]].tanh())


OF_MADE_EDGES = {
    'turned': lambda: Turned(LAYERS['SAGEConv']()),
    'looped': lambda: Looped(LAYERS['GCNConv']()),
    'looped, fused': lambda: pygfuse.fuse(Looped(LAYERS['GATConv']())),
    'undirected': lambda: Undirected(pyg.GINEConv(network(WIDTH), edge_dim=OF_EDGES)),
    'others': lambda: Crossed(pyg.GraphConv(WIDTH, WIDTH)),
    'updated': lambda: Updated(OfBoth()),
    'twofold': lambda: Twofold(OfBoth()),
    'paired': lambda: Paired(pyg.GINEConv(network(WIDTH), edge_dim=OF_EDGES)),
    'table': lambda: OfTable(Table()),
    'sized': lambda: Sized(LAYERS['SAGEConv']()),
}
OF_SEVERAL = 'edge_index_2', 'edge_attr'
GIVEN = {
    'undirected': ('edge_attr',),
    'table': ('edge_type',),
    'others': OF_SEVERAL,
    'updated': ('edge_attr',),
    'twofold': OF_SEVERAL,
}


@pytest.mark.parametrize('name', OF_MADE_EDGES)
def test_layers_on_edges_that_are_made(name):
    torch.manual_seed(0)
    data = given()
    data |= {'edge_index_2': data['others'], 'edge_type': data['edge_type'] % 2}
    assert_same(OF_MADE_EDGES[name](), of_module(data, *GIVEN.get(name, ())))


def test_each_call_makes_them_of_its_own_edges():
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(Looped(LAYERS['GATConv']()), of_module)
    assert len(compiled.plans()) == 1


def test_edges_that_are_drawn_are_the_same_for_both():
    torch.manual_seed(0)
    compiled, arguments = pygfuse.compile(Dropped(pyg.SimpleConv())), of_module(given())
    found = compiled(**arguments)
    assert compiled.note.reason is None
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-4)


class OfBoth(pyg.MessagePassing):
    """An interaction network, which returns nodes and edges."""

    def __init__(self, noise=False):
        super().__init__()
        self.of_nodes, self.of_edges = nn.Linear(WIDTH + OF_EDGES, WIDTH), nn.Linear(2 * WIDTH + OF_EDGES, OF_EDGES)
        self.norm, self.noise = nn.BatchNorm1d(OF_EDGES), noise

    def forward(self, x, edge_index, edge_attr):
        new = self.norm(self.edge_updater(edge_index, x=x, edge_attr=edge_attr))
        added = self.propagate(edge_index, edge_attr=new, size=(x.size(0), x.size(0)))
        out = x + self.of_nodes(torch.cat([x, added], dim=-1))
        return (out, edge_attr + new, None) if self.training or not self.noise else out

    def edge_update(self, x_i, x_j, edge_attr):
        return self.of_edges(torch.cat([x_i, x_j, edge_attr], dim=-1)).relu()

    def message(self, edge_attr):
        return edge_attr


class Processor(nn.Module):
    def __init__(self, layers, is_turned=False):
        super().__init__()
        self.layers, self.is_turned = nn.ModuleList(layers), is_turned

    def forward(self, x, edge_index, edge_attr):
        for layer in self.layers:
            x, edge_attr, _ = layer(x, edge_index, edge_attr)
        if self.is_turned:
            edge_index = edge_index.flip(0)
        message = torch.cat([x[edge_index[0]] - x[edge_index[1]], edge_attr], dim=-1).tanh()
        return message.new_zeros(x.size(0), message.size(1)).index_add(0, edge_index[1], message), edge_attr


def test_layers_that_return_nodes_and_edges():
    torch.manual_seed(0)
    module, arguments = Processor([OfBoth(), OfBoth()]), of_module(given(), 'edge_attr')
    assert_same(module, arguments)
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(module.named_buffers()))
    assert int(compiled.layers[0].norm.num_batches_tracked) == 1


def test_why_layers_that_return_several_are_refused():
    torch.manual_seed(0)
    arguments = of_module(given(), 'edge_attr')
    reason = 'OfBoth returns something else in training'
    assert_same(Processor([OfBoth(noise=True)]), arguments, reason)
    assert_same(Processor([OfBoth()], is_turned=True), arguments, 'values of several sets of edges at once')


def test_edges_as_two_tensors_are_no_argument_of_a_layer():
    arguments = of_module(given())
    arguments['edge_index'] = tuple(arguments['edge_index'])
    compiled = pygfuse.compile(Gated(LAYERS['SAGEConv']()))
    with pytest.raises(ValueError, match='only supports'):
        compiled(**arguments)
    assert compiled.note.reason.startswith('it calls a layer (SAGEConv) with something else than nodes')


class WithOneMore(pyg.SimpleConv):
    def forward(self, x, edge_index):
        return torch.cat([super().forward(x, edge_index), x[:1]])


class Cut(Wrapped):
    def forward(self, x, edge_index):
        h = self.layer(x, edge_index)[: x.size(0)]
        return torch.zeros_like(x).index_add(0, edge_index[1], h[edge_index[0]].tanh())


class AsManyAsNodes(Processor):
    """Of an example there are as many such edges as nodes: whose rows are whose cannot be told."""

    def forward(self, x, edge_index, edge_attr):
        x, _, _ = self.layers[0](x, edge_index[:, :5], edge_attr[:5])
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]].tanh())


def test_rows_of_nobody_are_refused():
    torch.manual_seed(0)
    reason = '{} returns something else than a row for each node or edge'
    assert_same(Cut(WithOneMore()), of_module(given()), reason.format('WithOneMore'))
    assert_same(AsManyAsNodes([OfBoth()]), of_module(given(), 'edge_attr'), reason.format('OfBoth'))


def test_layers_between_two_sets_of_nodes():
    torch.manual_seed(0)
    data = given()
    between = {'x': torch.randn(NODES + 5, WIDTH), 'edge_index': data['edge_index'], 'y': data['x']}
    assert_same(Pairs(LAYERS['SAGEConv']()), between)
