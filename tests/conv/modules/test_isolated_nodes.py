"""Nodes without edges have no gradient, whatever is divided by numbers of edges, which theirs is 0."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree, scatter

from tests.conv.modules.arguments import assert_same, given

EDGES = torch.tensor([[3, 3, 4, 9, 2], [4, 9, 4, 3, 3]])


class ByDegreesOfSources(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        count = degree(row, x.size(0), x.dtype).unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, col, x[row] / count[row])


class ByDegreesOfTargets(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        count = degree(col, x.size(0), x.dtype).unsqueeze(-1)
        return (2 * x).index_add(0, col, x[row] * torch.tanh(x[col] / count[col]))


class BySums(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        total = torch.zeros_like(x).index_add_(0, row, x[row].exp())
        return torch.zeros_like(x).index_add_(0, col, x[row] / total[row])


class OfUnitLength(torch.nn.Module):
    """Cosines, of which no row of zeros has any."""

    def forward(self, x, edge_index):
        row, col = edge_index
        cosine = (x[row] / x[row].norm(dim=-1, keepdim=True) * x[col]).sum(-1, keepdim=True)
        return x + scatter(cosine * x[row], col, dim=0, dim_size=x.size(0), reduce='sum')


class InMessage(MessagePassing):
    def __init__(self):
        super().__init__(aggr='sum')

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j, edge_index_j, size_j):
        return x_j / degree(edge_index_j, size_j, x_j.dtype).unsqueeze(-1)[edge_index_j]


@pytest.mark.parametrize(
    'kind', [ByDegreesOfSources, ByDegreesOfTargets, BySums, OfUnitLength, InMessage], ids=lambda kind: kind.__name__
)
def test_gradients_are_finite(kind):
    x = given()['x']
    x[:2] = 0.0
    compiled = assert_same(kind(), {'x': x, 'edge_index': EDGES})
    assert all(plan.guarded for plan in compiled.plans()[-1:])


class WrittenOfNodes(torch.nn.Module):
    """What the module itself computes of all nodes is what it was."""

    def forward(self, x, edge_index):
        row, col = edge_index
        total = torch.zeros_like(x).index_add_(0, col, x[row].abs())
        unit = torch.nn.functional.normalize(x + total, dim=-1)
        return torch.zeros_like(x).index_add_(0, col, unit[row] * unit[col]), unit.log1p()


def test_what_is_written_of_nodes_needs_no_guard():
    compiled = assert_same(WrittenOfNodes(), {'x': given()['x'].abs(), 'edge_index': EDGES})
    assert not any(plan.guarded for plan in compiled.plans())


class SentBack(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        message = x[row] / degree(row, x.size(0), x.dtype).unsqueeze(-1)[row] + x[col].sqrt()
        return torch.zeros_like(x).index_add_(0, col, message), torch.zeros_like(x).index_add_(0, row, message)


def test_along_edges_that_lead_back():
    x = given()['x'].abs()
    x[:2] = 0.0
    assert_same(SentBack(), {'x': x, 'edge_index': EDGES})
