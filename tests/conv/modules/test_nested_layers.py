"""Modules that gather and reduce themselves, and have layers of PyG's within them."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.utils import softmax

import pygfuse
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, given
from tests.conv.modules.modules_of_layers import LAYERS, Gated, Wrapped, network, of_module

AS_THEY_ARE = 'only its layers read edges, which run as they are'


class Linked(nn.Module):
    """An encoder, and scores of other edges."""

    def __init__(self, layer):
        super().__init__()
        self.layers = nn.ModuleList([layer, copy.deepcopy(layer)])

    def forward(self, x, edge_index, pos_edge_index, neg_edge_index):
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.score(x, pos_edge_index), self.score(x, neg_edge_index)

    def score(self, x, edges):
        return (x[edges[0]] * x[edges[1]]).sum(dim=-1)


class Alternating(nn.Module):
    """Edges are updated by their ends, and nodes by a layer that reads them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([pyg.GINEConv(network(WIDTH), edge_dim=OF_EDGES) for _ in range(2)])
        self.of_edges = nn.Linear(2 * WIDTH + OF_EDGES, OF_EDGES)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        for layer in self.layers:
            x = x + layer(x, edge_index, edge_attr=edge_attr)
            edge_attr = edge_attr + self.of_edges(torch.cat([x[row], x[col], edge_attr], dim=-1)).relu()
        return x


def other_edges(data):
    negative = data['others'][:, :70]
    return {**of_module(data), 'pos_edge_index': data['others'][:, 70:], 'neg_edge_index': negative}


@pytest.mark.parametrize('is_fused', [False, True])
@pytest.mark.parametrize('name', LAYERS)
def test_a_layer_and_what_is_gathered_beside_it(name, is_fused):
    torch.manual_seed(0)
    module = Gated(LAYERS[name]())
    assert_same(pygfuse.fuse(module) if is_fused else module, of_module(given()))


def test_scores_of_other_edges():
    torch.manual_seed(0)
    assert_same(Linked(LAYERS['SAGEConv']()), other_edges(given()))


def test_values_of_edges_that_are_computed_for_a_layer():
    torch.manual_seed(0)
    assert_same(Alternating(), of_module(given(), 'edge_attr'))


def test_each_call_has_its_own_edges():
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(Linked(LAYERS['GATConv']()), other_edges)
    assert len(compiled.plans()) == 1


def test_layers_alone_run_as_they_are():
    arguments = of_module(given())
    compiled = pygfuse.compile(Wrapped(LAYERS['EdgeConv']()))
    for _ in range(20):
        compiled(**arguments)
        assert compiled.note.reason == AS_THEY_ARE
    assert len(compiled._plans) == 2


def test_statistics_move_once_a_call():
    torch.manual_seed(0)
    module, arguments = Gated(LAYERS['GINConv']()), of_module(given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(3):
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None
    theirs, ours = (dict(one.named_buffers()) for one in (module, compiled))
    torch.testing.assert_close(ours, theirs)
    assert int(ours['layer.nn.1.num_batches_tracked']) == 3


class Unread(Gated):
    def forward(self, x, edge_index):
        self.layer(x, edge_index)
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]].tanh())


def test_statistics_of_a_layer_that_nobody_reads():
    torch.manual_seed(0)
    module, arguments = Unread(LAYERS['GINConv']()), of_module(given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(module.named_buffers()))


class Encoded(nn.Module):
    """A model of PyG's, scores of its pairs, and a mean over each graph, whose number the numbers tell."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.lin = encoder, nn.Linear(WIDTH, 3)

    def forward(self, x, edge_index, batch):
        z = self.encoder(x, edge_index)
        row, col = edge_index
        change = torch.zeros_like(z).index_add(0, col, (z[row] - z[col]).abs())
        share = softmax(z[:, :1], batch)
        return self.lin(pyg.global_mean_pool(z + change, batch)), pyg.global_add_pool(share * z, batch)


def sequential():
    layers = [(pyg.GCNConv(WIDTH, WIDTH), 'x, ei -> h'), nn.ReLU(), (pyg.GCNConv(WIDTH, WIDTH), 'h, ei -> h')]
    return pyg.Sequential('x, ei', layers)


ENCODERS = {
    'GIN': lambda: pyg.GIN(WIDTH, WIDTH, 2, WIDTH, norm='batch_norm'),
    'GraphSAGE': lambda: pyg.GraphSAGE(WIDTH, WIDTH, 2, WIDTH, jk='cat'),
    'Sequential': sequential,
}


@pytest.mark.parametrize('name', ENCODERS)
def test_models_of_layers(name):
    torch.manual_seed(0)
    # others of its class have a forward of their own
    sequential()
    assert_same(Encoded(ENCODERS[name]()), of_module(given(), 'batch'))


def test_each_batch_has_its_number_of_graphs():
    torch.manual_seed(0)
    module = Encoded(sequential())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for graphs in (3, 5, 3):
        arguments = {**of_module(given()), 'batch': torch.arange(NODES) % graphs}
        for found, wanted in zip(compiled(**arguments), module(**arguments), strict=True):
            torch.testing.assert_close(found, wanted)
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 2


class Frozen(Gated):
    """One layer has no gradients, and another one is called for its statistics alone."""

    def forward(self, x, edge_index):
        with torch.no_grad():
            h = self.layer(x, edge_index)
            self.gate(h, edge_index)
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * h[edge_index[1]].tanh())


def test_layers_without_gradients():
    torch.manual_seed(0)
    module, arguments = Frozen(LAYERS['GINConv']()), of_module(given())
    arguments['x'].requires_grad_()
    compiled = pygfuse.compile(copy.deepcopy(module))
    outs = [one(**arguments) for one in (compiled, module)]
    torch.testing.assert_close(*outs)
    torch.testing.assert_close(*[torch.autograd.grad(out.sum(), arguments['x']) for out in outs])
    assert compiled.note.reason is None
    grads = torch.autograd.grad(compiled(**arguments).sum(), list(compiled.parameters()), allow_unused=True)
    assert all(grad is None for grad in grads)
    module(**arguments)
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(module.named_buffers()))


class Casting(Gated):
    def forward(self, x, edge_index):
        with torch.autocast('cpu', torch.bfloat16):
            h = self.layer(x, edge_index)
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * h[edge_index[1]].float())


def test_layers_within_a_cast_run_with_the_own_code():
    torch.manual_seed(0)
    module, arguments = Casting(LAYERS['GCNConv']()), of_module(given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert 'autocast' in compiled.note.reason


def test_dropout_of_one_layer_is_drawn_for_each_call_of_it():
    class Twice(Gated):
        def forward(self, x, edge_index):
            one, other = self.layer(x, edge_index), self.layer(x, edge_index)
            return torch.zeros_like(one).index_add(0, edge_index[1], (one - other)[edge_index[0]])

    torch.manual_seed(0)
    compiled = pygfuse.compile(Twice(pyg.GATConv(WIDTH, WIDTH, dropout=0.5)))
    assert compiled(**of_module(given())).abs().max() > 0
    assert compiled.note.reason is None
    assert compiled.eval()(**of_module(given())).abs().max() == 0


def test_hooks_of_layers_see_what_they_compute():
    module, arguments, seen = Gated(LAYERS['GCNConv']()), of_module(given()), []
    compiled = pygfuse.compile(module)
    module.layer.register_forward_hook(lambda layer, taken, out: seen.append(out))
    compiled(**arguments)
    assert compiled.note.reason is None
    (out,) = seen
    torch.testing.assert_close(out, module.layer.forward(**arguments))


def test_a_layer_of_other_channels():
    module, arguments = Wider(pyg.GCNConv(WIDTH, 3)), of_module(given())
    compiled = pygfuse.compile(module)
    for channels in (3, 5):
        module.layer = pyg.GCNConv(WIDTH, channels, bias=False)
        expected = Wider.forward(module, **arguments)
        torch.testing.assert_close(compiled(**arguments), expected)
        assert compiled.note.reason is None
    module.layer.lin = pyg.Linear(WIDTH, 7, bias=False)
    assert compiled(**arguments).shape == (NODES, 14)


class Wider(Wrapped):
    def forward(self, x, edge_index):
        h = self.layer(x, edge_index)
        out = h.new_zeros(h.shape).index_add(0, edge_index[1], h[edge_index[0]].tanh())
        return torch.cat([out, h.new_ones(h.shape)], dim=-1)


def test_layers_that_the_first_call_initialises():
    torch.manual_seed(0)
    compiled, arguments = pygfuse.compile(Wider(pyg.SAGEConv(-1, 3))), of_module(given())
    compiled(**arguments)
    assert compiled.note.reason == 'weight is a UninitializedParameter'
    torch.testing.assert_close(compiled(**arguments), Wider.forward(compiled, **arguments))
    assert compiled.note.reason is None


@pytest.mark.parametrize('is_long', [False, True])
def test_traces_of_them(is_long):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, arguments = Gated(LAYERS['GCNConv']()), of_module(given(edges=70_000 if is_long else 200))
    compiled = torch.compile(pygfuse.compile(copy.deepcopy(module)), backend='aot_eager')
    torch.testing.assert_close(compiled(**arguments), module(**arguments), rtol=1e-4, atol=1e-4)
