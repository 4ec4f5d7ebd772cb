"""EdgeConv gives the numbers of PyG for any network and graph."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import BatchNorm1d, LeakyReLU, Linear, Module, PReLU, ReLU, Sequential, Tanh

from tests.support.edge_conv import (
    DEEP,
    FEATURES,
    HIDDEN,
    NETWORKS,
    RANDOM,
    SHALLOW,
    SLOW_SHALLOW,
    WIDE,
    check,
    one,
    pair,
)
from tests.support.parity import GRAPHS, Example, results

AGGREGATIONS = ('max', 'sum', 'mean', 'min')


def shared(module: Module, *, width: int = HIDDEN) -> Module:
    """A network in which a module comes twice, and what stands between differs."""
    return one(module, Linear(width, width), Tanh(), module, width=width)


# a module that comes twice
SHARED = {
    'activation': lambda: shared(LeakyReLU(0.2)),
    'prelu': lambda: shared(PReLU(HIDDEN)),
    'linear': lambda: shared(Linear(HIDDEN, HIDDEN)),
    'first linear': lambda: (lambda linear: Sequential(linear, Tanh(), linear))(Linear(WIDE, WIDE)),
    'norm': lambda: shared(BatchNorm1d(HIDDEN)),
    "norm in PyG's, cumulative": lambda: shared(pyg.BatchNorm(HIDDEN, momentum=None)),
    'norm twice in a row': lambda: (lambda norm: one(norm, norm, ReLU()))(BatchNorm1d(HIDDEN)),
    'sequential': lambda: shared(Sequential(Linear(HIDDEN, HIDDEN), BatchNorm1d(HIDDEN), ReLU())),
}


slow = [pytest.param(name, marks=pytest.mark.slow) for name in SLOW_SHALLOW]


@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('name', [*SHALLOW, *slow, *DEEP])
def test_networks(name, aggr):
    for graph in ('random', 'isolated nodes', 'bipartite, more targets', 'no edges'):
        check(NETWORKS[name](), aggr, GRAPHS[graph]())


@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('name', ['linear', 'no bias', *DEEP])
def test_networks_along_many_edges(name, aggr, many_edges):
    test_networks(name, aggr)


@pytest.mark.parametrize('aggr', ['max', 'mean'])
@pytest.mark.parametrize('name', SHARED)
def test_a_module_that_comes_twice(name, aggr):
    """Batch normalisations count their steps and move their statistics twice, in order: `check` compares the states."""
    check(SHARED[name](), aggr, RANDOM)


@pytest.mark.parametrize('aggr', ['max', 'mean'])
@pytest.mark.parametrize('name', ['norm, relu', 'relu, norm', 'two', 'two, norm after each', 'three'])
@pytest.mark.parametrize('graph', ['random', 'hub'])
def test_networks_in_float32(graph, name, aggr):
    if (graph, name, aggr) == ('hub', 'two', 'mean'):
        pytest.skip('equal summands: the sum of a row of 100,000 in a walk is 1.01e-5 off')
    check(NETWORKS[name](), aggr, GRAPHS[graph](), torch.float32)


@pytest.fixture
def small_chunks(many_edges, monkeypatch):
    """Chunks so small that rows are cut."""
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.CHUNK_BYTES', 1)
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.LEAST_EDGES', 7)
    monkeypatch.setattr('pygfuse.ops.edge_mlp.reduction.SETTLED_AFTER', 3)


@pytest.mark.parametrize('aggr', ['max', 'mean'])
@pytest.mark.parametrize('name', ['two', 'two, norm after each', 'three, nothing rises'])
@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'self-loops'])
def test_rows_that_lie_in_several_chunks(graph, name, aggr, small_chunks):
    check(NETWORKS[name](), aggr, GRAPHS[graph]())


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(['norm, relu', 'relu, norm', 'two, norm between', 'three, nothing rises']),
    aggr=st.sampled_from(['max', 'sum']),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    ends=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=8, max_size=40),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 99),
)
def test_any_graph(name, aggr, sizes, ends, dtype, seed):
    edge_index = torch.tensor(ends).t() % torch.tensor(sizes).unsqueeze(1)
    example = Example(edge_index.contiguous(), *sizes)
    conv, twin = pair(NETWORKS[name](), aggr)
    x = tuple(torch.randn(n, FEATURES, generator=torch.Generator().manual_seed(seed + n)) for n in sizes)
    wanted = results(conv, {'x': x, 'edge_index': example.edge_index}, torch.float64, seed)
    got = results(twin, {'x': x, 'edge_index': example.edge_index.to(dtype)}, torch.float64, seed)
    # values that repeated edges share leave variances that cancel
    for name_, expected in wanted.items():
        if aggr == 'sum' or not name_.startswith('gradient'):
            torch.testing.assert_close(got[name_], expected, rtol=1e-6, atol=1e-6)
    assert twin.note.reason is None
