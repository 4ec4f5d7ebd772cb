"""Products of two matrices of each edge, as those of differences of several points are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pygfuse
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules.arguments import assert_same, given


class Gram(nn.Module):
    """Scalar products of vectors between points of both ends."""

    def __init__(self, points):
        super().__init__()
        self.lin = nn.Linear(points * points + WIDTH, WIDTH)

    def forward(self, x, edge_index, points):
        row, col = edge_index
        difference = points[row] - points[col]
        products = self.product(difference).flatten(1)
        message = self.lin(torch.cat([x[row], products], dim=1)).relu()
        return torch.zeros_like(x).index_add(0, col, message)

    def product(self, difference):
        return torch.bmm(difference, difference.transpose(-1, -2))


class OfThree(Gram):
    def product(self, difference):
        return difference @ difference.transpose(1, 2) @ difference @ difference.mT


@pytest.mark.parametrize('kind', [Gram, OfThree])
@pytest.mark.parametrize('points', [1, 4, 7])
def test_numbers(kind, points):
    data = given()
    torch.manual_seed(1)
    arguments = {'x': data['x'], 'edge_index': data['edge_index'], 'points': torch.randn(NODES, points, 3)}
    assert_same(kind(points), arguments)


def test_small_ones_have_a_program():
    """What is left for the network are numbers in memory, which a walk writes."""
    data = given()
    compiled = pygfuse.compile(Gram(4))
    compiled(data['x'], data['edge_index'], torch.randn(NODES, 4, 3))
    assert not any(node.op == 'einsum' for node in compiled.plans()[0].steps)
    compiled = pygfuse.compile(Gram(7))
    compiled(data['x'], data['edge_index'], torch.randn(NODES, 7, 3))
    assert 'einsum' in str(pygfuse.explain(compiled))
