"""Dropouts of channels that walks draw: to the bit what torch computes of marks and keys."""

from __future__ import annotations

import pytest
import torch

from pygfuse.ops import Edges, aggregate
from pygfuse.ops.dropout_draws import dropout_draws, edge_marks
from pygfuse.program.vocabulary import dropout_factor
from tests.support.comparison import DROPPING
from tests.support.parity import random_edges

CPU = torch.device('cpu')


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(('heads', 'channels'), [(1, 1), (1, 24), (3, 7), (2, 64), (1, 300)])
@pytest.mark.parametrize('num_edges', [40, 3000])
def test_walks_draw_the_same_factors(num_edges, heads, channels, dtype):
    """Each edge leads to a target of its own, so that sums are of one number."""
    torch.manual_seed(0)
    width = heads * channels
    edge_index = torch.stack([torch.zeros(num_edges, dtype=torch.int64), torch.randperm(num_edges)])
    marks, draws = edge_marks(num_edges, CPU, dtype), dropout_draws((1, width), 0.3, dtype, CPU)
    given = {'x': torch.ones(1, width, dtype=dtype), 'mark': marks.repeat(1, width)}
    given |= {'key': draws[0], 'probability': draws[1]}
    out = aggregate(DROPPING, Edges(edge_index, 1, num_edges), given, heads, channels, flat=True)
    assert torch.equal(out[edge_index[1]] != 0, dropout_factor(marks, *draws) != 0)
    torch.testing.assert_close(out[edge_index[1]], dropout_factor(marks, *draws))


def test_backward_draws_what_forward_drew():
    torch.manual_seed(0)
    edge_index, x = random_edges(50, 50, 2000), torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    marks, draws = edge_marks(2000, CPU, x.dtype), dropout_draws((1, 8), 0.3, x.dtype, CPU)
    given = {'x': x, 'mark': marks.repeat(1, 8), 'key': draws[0], 'probability': draws[1]}
    out = aggregate(DROPPING, Edges(edge_index, 50, 50), given, 1, 8, flat=True)
    (found,) = torch.autograd.grad(out.sum(), x)
    expected = torch.zeros_like(x).index_add(0, edge_index[0], dropout_factor(marks, *draws))
    torch.testing.assert_close(found, expected)


def test_each_call_has_keys_of_its_own():
    torch.manual_seed(0)
    first = dropout_draws((8,), 0.3, torch.float32, CPU)
    assert not torch.equal(first[0], dropout_draws((8,), 0.3, torch.float32, CPU)[0])
    torch.manual_seed(0)
    assert torch.equal(first, dropout_draws((8,), 0.3, torch.float32, CPU))
