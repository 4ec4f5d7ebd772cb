"""Reductions without a size, whose results end at the last target that has an edge."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.utils
from torch.nn import Linear, Parameter, ReLU, Sequential

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 8, 20, 90
REASON = 'a reduction without a size, along edges of which none leads to the last target'


class Unsized(Own):
    """A weighed mean, and nothing in ``update`` that would need a row for each target."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(torch.randn(WIDTH))

    def message(self, x_i, x_j):
        return (x_j - x_i).tanh() * self.weight

    def aggregate(self, inputs, index):
        return torch_geometric.utils.scatter(inputs, index, dim=self.node_dim, reduce='mean')


class Network(Unsized):
    """Two reductions of a network's messages."""

    def __init__(self):
        super().__init__()
        self.nn = Sequential(Linear(2 * WIDTH, WIDTH), ReLU(), Linear(WIDTH, WIDTH))

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j], dim=-1))

    def aggregate(self, inputs, index):
        total = torch_geometric.utils.scatter(inputs, index, 0, reduce='sum')
        return total + super().aggregate(inputs.relu(), index) * self.weight


def edges(last: int = NODES - 1) -> torch.Tensor:
    """Edges whose last target is as said."""
    found = random_edges(NODES, last, EDGES)
    found[1, EDGES // 2] = last
    return found


def given(last: int = NODES - 1) -> dict[str, torch.Tensor]:
    return {'edge_index': edges(last), 'x': torch.randn(NODES, WIDTH)}


@pytest.mark.parametrize('kind', [Unsized, Network])
def test_outputs_and_gradients_are_those_of_pyg(kind):
    assert_as_pyg(kind(), given())


def test_functions_of_torch_scatter(needs_torch_sparse):
    import torch_scatter

    class Scattered(Unsized):
        def aggregate(self, inputs, index):
            return torch_scatter.scatter(inputs, index, dim=self.node_dim, reduce='sum')

    assert_as_pyg(Scattered(), given())


@pytest.mark.parametrize('last', [NODES - 2, 3])
def test_results_that_end_early(last):
    conv = Unsized()
    fused, arguments = pygfuse.compile(copy.deepcopy(conv)), given(last)
    out = fused(**arguments)
    assert out.shape == (last + 1, WIDTH)
    assert torch.equal(out, conv(**arguments))
    assert fused.note.reason == REASON


def test_calls_like_the_one_before():
    conv = Unsized()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for last in (NODES - 1, NODES - 1, NODES - 2, NODES - 1, 3, NODES - 1):
        arguments = given(last)
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
        assert fused.note.reason == (None if last == NODES - 1 else REASON)


def test_edges_that_are_written_to():
    conv, arguments = Unsized(), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    fused(**arguments)
    arguments['edge_index'].copy_(edges(3))
    assert fused(**arguments).shape == (4, WIDTH)


def test_no_edges():
    conv, arguments = Unsized(), {**given(), 'edge_index': torch.empty(2, 0, dtype=torch.int64)}
    assert pygfuse.compile(copy.deepcopy(conv))(**arguments).shape == conv(**arguments).shape


def test_it_runs_between_two_traces():
    conv, arguments = Unsized(), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    found = torch.compile(fused, backend='eager')(**arguments)
    torch.testing.assert_close(found, conv(**arguments))
    assert fused.note.reason is None


# Messages of features of edges alone, which tell no number of nodes


class OfEdges(Own):
    def __init__(self, aggr='add'):
        super().__init__(aggr=aggr)
        self.nn = Sequential(Linear(WIDTH, WIDTH), ReLU(), Linear(WIDTH, WIDTH))

    def forward(self, edge_index, edge_attr, size=None):
        return self.propagate(edge_index, size=size, edge_attr=edge_attr)

    def message(self, edge_attr):
        return self.nn(edge_attr).tanh()


class OfSizes(OfEdges):
    def message(self, edge_attr, size_i):
        return edge_attr if size_i is None else 2 * edge_attr


@pytest.mark.parametrize('aggr', ['add', 'mean', 'max'])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_the_last_target_ends_the_result(flow, aggr):
    conv = OfEdges(aggr)
    conv.flow = flow
    assert_as_pyg(conv, {'edge_index': edges(), 'edge_attr': torch.randn(EDGES, WIDTH)})


def test_each_call_s_last_target_ends_its_result():
    conv = OfEdges()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for last in (NODES - 1, NODES - 1, NODES - 2, NODES + 7, 3, 3):
        arguments = {'edge_index': edges(last), 'edge_attr': torch.randn(EDGES, WIDTH)}
        found, expected = fused(**arguments), conv(**arguments)
        assert found.shape == (last + 1, WIDTH)
        torch.testing.assert_close(found, expected)
        sized = {**arguments, 'size': (NODES + 8, NODES + 8)}
        torch.testing.assert_close(fused(**sized), conv(**sized))
    assert fused.note.reason is None


def test_sizes_that_nobody_says():
    conv, arguments = OfSizes(), {'edge_index': edges(), 'edge_attr': torch.randn(EDGES, WIDTH)}
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason == 'it reads size_i, and nothing tells the number of nodes'


def test_torch_compiles_no_result_of_unknown_rows():
    conv, arguments = OfEdges(), {'edge_index': edges(), 'edge_attr': torch.randn(EDGES, WIDTH)}
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(torch.compile(fused, backend='eager')(**arguments), conv(**arguments))
    assert fused.note.reason == 'nothing tells the number of nodes'


def test_no_edges_tell_no_number_of_nodes():
    conv, arguments = OfEdges(), {'edge_index': edges()[:, :0], 'edge_attr': torch.randn(0, WIDTH)}
    fused = pygfuse.compile(copy.deepcopy(conv))
    assert fused(**arguments).shape == conv(**arguments).shape
    assert fused.note.reason == 'nothing tells the number of nodes'
