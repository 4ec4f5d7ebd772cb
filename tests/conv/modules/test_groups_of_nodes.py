"""Modules that reduce values of edges to groups of their ends, as to the graphs of a batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.utils import scatter, softmax

import pygfuse
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_same, given

torch_scatter = pytest.importorskip('torch_scatter')
# the last one has no nodes
GROUPS = 5


class Megnet(nn.Module):
    """MEGNet: a state of each graph follows from those of its edges and nodes."""

    def __init__(self):
        super().__init__()
        self.of_edges = nn.Linear(2 * WIDTH + OF_EDGES, WIDTH)
        self.of_nodes, self.of_graphs = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_attr, batch):
        row, col = edge_index
        edges = self.of_edges(torch.cat([x[row], x[col], edge_attr], dim=-1)).relu()
        x = self.of_nodes(torch.cat([x, self.to_nodes(edges, row, col, x.size(0))], dim=-1)).relu()
        state = self.to_graphs(edges, batch, row, col)
        nodes = scatter(x, batch, 0, dim_size=state.size(0), reduce='mean')
        return x, self.of_graphs(torch.cat([state, nodes], dim=-1))

    def to_nodes(self, edges, row, col, count):
        return scatter(edges, col, 0, dim_size=count, reduce='mean')

    def to_graphs(self, edges, batch, row, col):
        return scatter(edges, batch[row], 0, dim_size=GROUPS, reduce='mean')


class OfTargets(Megnet):
    def to_graphs(self, edges, batch, row, col):
        return scatter(edges, batch[col], dim=0, dim_size=GROUPS)


class ToRows(Megnet):
    def to_nodes(self, edges, row, col, count):
        return scatter(edges, row, 0, dim_size=count)


class OfTorchScatter(Megnet):
    def to_graphs(self, edges, batch, row, col):
        return torch_scatter.scatter_mean(edges, batch[row], dim=0)


class OfBlocks(Megnet):
    """Blocks of numbers, a weight of each edge, and a number that nodes have by other means."""

    def to_graphs(self, edges, batch, row, col):
        blocks = scatter(edges.view(-1, 2, WIDTH // 2), (batch * 2 - batch)[col], 0, GROUPS, 'mean').flatten(1)
        return blocks * scatter(edges[:, 0].sigmoid(), batch[row], 0, GROUPS, 'mean')[:, None]


class OfExtremes(Megnet):
    def to_graphs(self, edges, batch, row, col):
        return scatter(edges, batch[row], 0, dim_size=GROUPS, reduce='max')


class Chosen(Megnet):
    """Edges within a group alone, and the sum of all others."""

    def forward(self, x, edge_index, edge_attr, batch):
        chosen = edge_index[0] < edge_index[1]
        others = scatter(x[edge_index[0]].tanh(), batch[edge_index[1]], 0, GROUPS)
        nodes, graphs = super().forward(x, edge_index[:, chosen], edge_attr[chosen], batch)
        return nodes, graphs + others


class Weighed(Megnet):
    """Attention of each graph to its edges, some by scores far below zero."""

    def to_graphs(self, edges, batch, row, col):
        scores = edges[:, :2] - 2000
        of_sources = softmax(scores, batch[row], num_nodes=GROUPS)
        of_targets = softmax(edges.sum(-1), batch[col], num_nodes=GROUPS)
        weighed = edges * of_sources[:, :1] + edges.cos() * of_sources[:, 1:] * of_targets.unsqueeze(-1)
        return scatter(weighed, batch[row], 0, dim_size=GROUPS)


class Unsized(Megnet):
    """The same where nobody says how many graphs there are, by two libraries."""

    def to_graphs(self, edges, batch, row, col):
        weights = softmax(edges, batch[row]) + torch_scatter.scatter_softmax(edges.sin(), batch[col], dim=0)
        return scatter(edges * weights, batch[row], 0, dim_size=GROUPS)


def of_batch(data):
    data['batch'] = torch.arange(NODES) * (GROUPS - 1) // NODES
    return {name: data[name] for name in ('x', 'edge_index', 'edge_attr', 'batch')}


@pytest.mark.parametrize('kind', [Megnet, OfTargets, ToRows, OfTorchScatter, OfBlocks, Chosen, Weighed, Unsized])
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), of_batch(given()))


def test_nodes_without_edges_have_no_part_in_a_softmax():
    torch.manual_seed(0)
    arguments = of_batch(given())
    # no edge begins or ends at every second node
    arguments['edge_index'] = arguments['edge_index'] // 2 * 2
    assert_same(Weighed(), arguments)


def test_extremes_run_with_the_own_code():
    torch.manual_seed(0)
    assert_same(OfExtremes(), of_batch(given()), "the reduction 'max' of edges to groups of nodes")


def test_a_number_of_groups_that_nobody_says_is_that_of_each_call():
    torch.manual_seed(0)
    arguments = of_batch(given())
    compiled = pygfuse.compile(OfTorchScatter())
    for count in (GROUPS - 1, GROUPS - 2, GROUPS - 1):
        call = {**arguments, 'batch': arguments['batch'].clamp(max=count - 1)}
        for ours, theirs in zip(compiled(**call), OfTorchScatter.forward(compiled, **call), strict=True):
            torch.testing.assert_close(ours, theirs)
        assert compiled.note.reason is None
        assert compiled(**call)[1].shape[0] == count
    assert len(compiled.plans()) == 2
