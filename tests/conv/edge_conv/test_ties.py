"""How edges that tie in a maximum share its gradient."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import GELU, BatchNorm1d, Linear, Module, PReLU

from pygfuse.conv import EdgeConv
from tests.support.edge_conv import DEEP, FEATURES, HIDDEN, NETWORKS, OUT, RANDOM, check, one, pair
from tests.support.parity import GRAPHS, assert_close, results


@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('name', ['linear', 'norm, relu', 'relu, norm', 'norm, prelu', 'two', 'two, norm after each'])
def test_repeated_edges_tie(name, aggr):
    """Whichever of them gets the gradient, it goes to the same source."""
    check(NETWORKS[name](), aggr, GRAPHS['repeated edges']())


@pytest.mark.parametrize('name', ['linear', 'norm, relu', 'norm, prelu', "PyG's norm, leaky relu"])
def test_equal_sources_share_the_gradient_as_in_pyg(name):
    x = RANDOM.x(FEATURES)
    x[1::2] = x[::2]
    check(NETWORKS[name](), 'max', RANDOM, x=x)


def test_of_equal_sources_the_first_gets_the_gradient_behind_a_second_map(many_edges):
    """Where PyG divides the gradient among equal sources, a deep network gives it to the first edge."""
    edge_index = torch.tensor([[2, 1, 2], [0, 0, 0]])
    x = torch.randn(3, FEATURES).double()
    x[2] = x[1]
    found = []
    for conv in pair(DEEP['two']()):
        leaf = x.clone().requires_grad_()
        conv(leaf, edge_index)[0].sum().backward()
        found.append((leaf.grad, [parameter.grad for parameter in conv.parameters()]))
    (plain, of_plain), (fused, of_fused) = found
    torch.testing.assert_close(fused[1:].sum(0), plain[1:].sum(0))
    torch.testing.assert_close(of_fused, of_plain)
    assert not fused[1].any()
    assert fused[2].any()
    torch.testing.assert_close(plain[1] * 2, plain[2])


def with_zeros(nn: Module, layer: int, rows: slice, columns: slice = slice(None)) -> Module:
    linear = [module for module in nn.modules() if isinstance(module, Linear | pyg.Linear)][layer]
    torch.nn.init.zeros_(linear.weight[rows, columns])
    return nn


ALL, SOME, DIFFERENCE = slice(None), slice(1, 2), slice(FEATURES, None)
ROWS_OF_ZEROS = {
    'last': lambda: with_zeros(DEEP['two'](), -1, ALL),
    'one of the last': lambda: with_zeros(DEEP['two, norm after each'](), -1, SOME),
    'first': lambda: with_zeros(DEEP['two'](), 0, ALL),
    'between': lambda: with_zeros(DEEP['three'](), 1, ALL),
    'of the difference': lambda: with_zeros(DEEP['no norm, no activation'](), 0, ALL, DIFFERENCE),
    'before a norm between activations': lambda: with_zeros(
        one(GELU(), BatchNorm1d(HIDDEN), GELU()), 0, SOME, DIFFERENCE
    ),
}


def unchanged(nn: Module, aggr: str) -> tuple[Module, EdgeConv]:
    """PyG's layer and the fused one with the parameters of a network as they are."""
    conv, twin = pyg.EdgeConv(copy.deepcopy(nn), aggr=aggr), EdgeConv(copy.deepcopy(nn), aggr=aggr)
    for layer in (conv, twin):
        layer.nn.load_state_dict(nn.state_dict())
    return conv.double(), twin.double()


def test_a_slope_of_zero_behind_which_edges_tie():
    nn = one(PReLU(HIDDEN, init=0.0), Linear(HIDDEN, OUT))
    torch.nn.init.constant_(nn[0].bias, -100.0)
    conv, twin = unchanged(nn, 'max')
    arguments = {'x': RANDOM.x(FEATURES), 'edge_index': RANDOM.edge_index}
    assert_close(results(twin, arguments, torch.float64, 0), results(conv, arguments, torch.float64, 0), None)
    assert twin.note.reason == 'edges tie where a slope of a PReLU is zero'


@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('name', ROWS_OF_ZEROS)
def test_a_row_of_zeros_behind_which_all_edges_tie(name, aggr, many_edges):
    conv, twin = unchanged(ROWS_OF_ZEROS[name](), aggr)
    arguments = {'x': RANDOM.x(FEATURES), 'edge_index': RANDOM.edge_index}
    assert_close(results(twin, arguments, torch.float64, 0), results(conv, arguments, torch.float64, 0), None)
    assert twin.note.reason == 'all edges tie where a row of weights of a Linear is zero'


@pytest.mark.parametrize('name', ['last', 'first', 'of the difference'])
def test_rows_of_zeros_along_few_edges(name):
    conv, twin = unchanged(ROWS_OF_ZEROS[name](), 'max')
    arguments = {'x': RANDOM.x(FEATURES), 'edge_index': RANDOM.edge_index}
    assert_close(results(twin, arguments, torch.float64, 0), results(conv, arguments, torch.float64, 0), None)
    assert twin.note.reason is None


@pytest.mark.parametrize(
    ('name', 'aggr'), [*itertools.product(['linear', "PyG's norm, leaky relu"], ['max', 'min']), ('two', 'mean')]
)
def test_rows_of_zeros_where_ties_are_shared_or_do_not_matter(name, aggr):
    conv, twin = unchanged(with_zeros(NETWORKS[name](), 0, SOME, DIFFERENCE), aggr)
    arguments = {'x': RANDOM.x(FEATURES), 'edge_index': RANDOM.edge_index}
    assert_close(results(twin, arguments, torch.float64, 0), results(conv, arguments, torch.float64, 0), None)
    assert twin.note.reason is None


@pytest.mark.parametrize('most', [0, 2**22])
def test_ties_are_the_same_where_a_second_derivative_is_wanted(most, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', most)
    _, conv = pair(DEEP['two']())
    x = RANDOM.x(FEATURES).double()
    x[1::2] = x[::2]
    found = []
    for create_graph in (False, True):
        leaf = x.clone().requires_grad_()
        out = conv(leaf, RANDOM.edge_index).square().sum()
        found.append(torch.autograd.grad(out, [leaf, *conv.parameters()], create_graph=create_graph))
    for second, first in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(second.detach(), first)
