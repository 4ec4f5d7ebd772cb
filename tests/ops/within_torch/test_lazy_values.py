"""Gradients that torch keeps no values of, or that it has yet to negate, are read as others are."""

import copy
import importlib
import pkgutil

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.ops.within_torch.lazy_values import in_memory
from tests.support.parity import random_edges

WIDTH, NODES = 8, 60
LAYERS = {
    'GCN': lambda: pyg.GCNConv(WIDTH, WIDTH),
    'GIN': lambda: pyg.GINConv(torch.nn.Linear(WIDTH, WIDTH)),
    'SAGE of maxima': lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr='max'),
    'GAT': lambda: pyg.GATConv(WIDTH, WIDTH),
    'ResGated': lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH),
    'EdgeConv': lambda: pyg.EdgeConv(torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.ReLU())),
    'RGCN': lambda: pyg.RGCNConv(WIDTH, WIDTH, 3),
}


def second_gradient(conv, edge_index):
    """Of a sum of absolute values, whose second derivative is zero everywhere."""
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    of_edges = (torch.arange(edge_index.shape[1]) % 3,) if isinstance(conv, pyg.RGCNConv) else ()
    (first,) = torch.autograd.grad(conv(x, edge_index, *of_edges).abs().sum(), x, create_graph=True)
    if not first.requires_grad:
        return first
    (found,) = torch.autograd.grad(first.square().sum(), x, allow_unused=True)
    return torch.zeros_like(x) if found is None else found


@pytest.mark.parametrize('edges', [100, 5_000])
@pytest.mark.parametrize('name', LAYERS)
def test_derivatives_that_are_zero_everywhere(name, edges):
    torch.manual_seed(3)
    edge_index, conv = random_edges(NODES, NODES, edges), LAYERS[name]().double()
    expected, found = (second_gradient(one, edge_index) for one in (conv, pygfuse.fuse(copy.deepcopy(conv))))
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('edges', [100, 5_000])
def test_a_gradient_that_is_yet_to_be_negated(edges):
    conv, edge_index = pyg.GCNConv(WIDTH, WIDTH), random_edges(NODES, NODES, edges)
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    seen = []

    def of_x(layer):
        out = layer(x, edge_index)
        out.register_hook(lambda grad: seen.append(grad) or torch._neg_view(grad.clone()))
        return torch.autograd.grad(out.square().sum(), x)[0]

    expected, found = of_x(conv), of_x(pygfuse.fuse(copy.deepcopy(conv)))
    assert len(seen) == 2
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_what_is_in_memory_is_left_alone():
    x, name = torch.ones(2), 'no tensor'
    assert in_memory(x) is x
    assert in_memory(name) is name
    negated = in_memory(torch._neg_view(x))
    assert not negated.is_neg()
    assert negated.tolist() == [-1.0, -1.0]


def functions() -> list[type]:
    for module in pkgutil.walk_packages(pygfuse.__path__, 'pygfuse.'):
        if 'cuda' not in module.name and '__main__' not in module.name:
            importlib.import_module(module.name)
    found, waiting = [], [torch.autograd.Function]
    while waiting:
        waiting += (below := waiting.pop().__subclasses__())
        found += [kind for kind in below if kind.__module__.startswith('pygfuse.')]
    return found


def test_every_function_of_autograd_is_given_values():
    kinds = functions()
    assert len(kinds) > 20
    assert [kind.__name__ for kind in kinds if not hasattr(kind.backward, '__wrapped__')] == []
