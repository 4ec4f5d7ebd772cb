"""Edges that are made within a trace, in memory that torch's compiler would write other edges into."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import pygfuse
from pygfuse.ops.within_torch import kept_memory
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 60, 500, 8


class Network(Own):
    """A network of edges, whose values are averaged."""

    def __init__(self):
        super().__init__('mean')
        self.nn = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j], dim=-1))


MAKE = {
    'SAGEConv': lambda: pyg.SAGEConv(WIDTH, WIDTH),
    'GATConv': lambda: pyg.GATConv(WIDTH, WIDTH, add_self_loops=False),
    'EGConv': lambda: pyg.EGConv(WIDTH, WIDTH, num_heads=2),
    'network': Network,
}


class Model(nn.Module):
    """Layers along edges that are as many each time, and others: the latter once the former have been read."""

    def __init__(self, make):
        super().__init__()
        self.layers = nn.ModuleList([make() for _ in range(3)])

    def forward(self, x, edge_index):
        loops = torch.arange(x.shape[0]).repeat(2, 1)
        for k, layer in enumerate(self.layers):
            # 0, but known once the layer before has run
            nothing = (x.sum() > 1e30).long()
            edges = torch.cat([(edge_index + k) % x.shape[0] + nothing, loops + nothing], dim=1)
            x = layer(x, edges).tanh()
        return x


@pytest.fixture
def anew():
    """Nothing that was compiled before, of which nobody knows whether it keeps the memory."""
    torch._dynamo.reset()
    inductor = pytest.importorskip('torch._inductor.config')
    with inductor.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield


@pytest.mark.parametrize('with_gradients', [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    'name', ['SAGEConv', *[pytest.param(name, marks=pytest.mark.slow) for name in MAKE if name != 'SAGEConv']]
)
@pytest.mark.usefixtures('anew')
def test_other_edges_are_not_taken_for_those_before(name, with_gradients):
    torch.manual_seed(0)
    model = Model(MAKE[name]).double()
    fused = pygfuse.fuse(copy.deepcopy(model), compile=True)
    traced = torch.compile(fused)
    for seed in range(2):
        x, edge_index = torch.randn(NODES, WIDTH, dtype=torch.float64), random_edges(NODES, NODES, EDGES, seed)
        found = []
        for run in (model, traced):
            given = x.clone().requires_grad_(with_gradients)
            with torch.set_grad_enabled(with_gradients):
                out = run(given, edge_index)
            gradients = torch.autograd.grad((out**2).sum(), [given]) if with_gradients else ()
            found.append((out, *gradients))
        for theirs, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert {layer.note.reason for layer in fused.layers} == {None}


@pytest.fixture
def forgetful(monkeypatch):
    """A compiler that keeps no memory."""
    wrapper = pytest.importorskip('torch._inductor.codegen.wrapper').PythonWrapperCodegen
    with monkeypatch.context() as patch:
        patch.setattr(wrapper, 'can_reuse', lambda *given: True)
        kept_memory._keep.cache_clear()
        yield
    kept_memory._keep.cache_clear()


@pytest.mark.usefixtures('anew', 'forgetful')
def test_a_compiler_without_memory_that_is_kept():
    conv = pygfuse.fuse(pyg.SAGEConv(WIDTH, WIDTH))
    x, edge_index = torch.randn(NODES, WIDTH), random_edges(NODES, NODES, EDGES)
    # others keep what they are given
    torch.testing.assert_close(torch.compile(conv, backend='aot_eager')(x, edge_index), conv(x, edge_index))
    torch._dynamo.reset()
    with pytest.raises(Exception, match='may write into the memory of edges'):
        torch.compile(conv)(x, edge_index)
