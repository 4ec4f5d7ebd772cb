from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn.aggr import LSTMAggregation

from pygfuse.hag.prefix_tree import find_prefix_tree, lstm_aggregate
from tests.support.parity import GRAPHS, random_edges


def sorted_by_target(edge_index):
    return edge_index[:, edge_index[1].argsort(stable=True)]


def lists_of(edge_index, num_targets: int) -> list[list[int]]:
    found = [[] for _ in range(num_targets)]
    for source, target in edge_index.t().tolist():
        found[target].append(source)
    return found


def distinct_prefixes(lists) -> int:
    return len({tuple(row[:i]) for row in lists for i in range(1, len(row) + 1)})


@settings(max_examples=60, deadline=None)
@given(
    sources=st.integers(1, 8),
    targets=st.integers(1, 30),
    degree=st.integers(0, 6),
    seed=st.integers(0, 2**20),
    pad=st.booleans(),
)
def test_lists_in_order_and_as_few_steps_as_prefixes(sources, targets, degree, seed, pad):
    edge_index = random_edges(sources, targets, degree * targets, seed)
    tree = find_prefix_tree(edge_index, (sources, targets), pad=pad)
    lists = lists_of(edge_index, targets)
    if pad:
        longest = max(map(len, lists))
        lists = [row + [sources] * (longest - len(row)) for row in lists]
    assert tree.cover() == lists
    assert tree.num_steps == (sum(map(len, lists)), distinct_prefixes(lists))
    # the lower bound in the proof of Theorem 2: prefixes of more than one neighbour
    longer = {tuple(row[:i]) for row in lists for i in range(2, len(row) + 1)}
    assert tree.num_aggregations.after == len(longer)
    assert tree.num_aggregations.after <= tree.num_aggregations.before


@pytest.mark.parametrize('name', [name for name in GRAPHS if name != 'hub'])
def test_lstm_equals_that_of_pyg(name):
    example = GRAPHS[name]()
    edge_index = sorted_by_target(example.edge_index)
    torch.manual_seed(0)
    aggregation = LSTMAggregation(5, 4).double()
    x = torch.randn(example.num_sources, 5, dtype=torch.float64, requires_grad=True)
    tree = find_prefix_tree(edge_index, (example.num_sources, example.num_targets), pad=True)
    found = lstm_aggregate(tree, x, aggregation.lstm)
    if not edge_index.shape[1]:
        assert not found.any()
        return
    expected = aggregation(x[edge_index[0]], edge_index[1], dim_size=example.num_targets)
    torch.testing.assert_close(found, expected)
    wanted = x, *aggregation.parameters()
    grad = torch.randn_like(found)
    for got, want in zip(*(torch.autograd.grad(out, wanted, grad) for out in (found, expected)), strict=True):
        torch.testing.assert_close(got, want)


def test_bad_input():
    tree = find_prefix_tree(torch.tensor([[2, 3], [0, 0]]))
    with pytest.raises(ValueError, match="'x' of shape"):
        lstm_aggregate(tree, torch.randn(3, 5), torch.nn.LSTM(5, 4))
    with pytest.raises(ValueError, match="'lstm'"):
        lstm_aggregate(tree, torch.randn(4, 5), torch.nn.LSTM(5, 4, num_layers=2))


def test_any_cell():
    """A cell whose weights depend on the place in the list; targets without neighbours keep the first state."""
    edge_index = torch.tensor([[2, 3, 4, 2, 3, 5], [0, 0, 0, 1, 1, 1]])
    tree = find_prefix_tree(edge_index, 6)
    x = torch.arange(6.0).view(6, 1)
    calls = []

    def cell(level, inputs, states):
        calls.append(inputs.tolist())
        return states + x[inputs] * 10.0**level

    found = tree.run(cell, torch.full((1, 1), 0.5))
    assert calls == [[2], [3], [4, 5]]
    assert found.flatten().tolist() == [432.5, 532.5, 0.5, 0.5, 0.5, 0.5]
