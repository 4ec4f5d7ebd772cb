from __future__ import annotations

import pytest
import torch

from pygfuse.cpu import adjoint
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES = 900, 700, 100_000


@pytest.mark.parametrize('heads', [1, 3])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_the_gradient_of_many_rows_is_not_divided_first(dtype, heads, monkeypatch):
    edges = Edges(random_edges(SOURCES, TARGETS, EDGES), SOURCES, TARGETS)
    x, grad = torch.randn(SOURCES, heads, 5, dtype=dtype), torch.randn(TARGETS, heads, 5, dtype=dtype)
    found, walked = [], []
    transposed = adjoint._mean_transposed
    monkeypatch.setattr(adjoint, '_mean_transposed', lambda *given: walked.append(1) or transposed(*given))
    for least in (2**30, 0):
        monkeypatch.setattr(adjoint, 'LEAST_BYTES', least)
        given = x.clone().requires_grad_()
        aggregate(NEIGHBOURS, edges, {'x': given}, heads, 5, 'mean').backward(grad)
        found.append(given.grad)
    torch.testing.assert_close(*found)
    assert walked == [1]


@pytest.mark.parametrize('reduce', ['max', 'mean'])
@pytest.mark.parametrize('heads', [1, 3])
def test_large_gradients_are_divided_on_huge_pages(heads, reduce, monkeypatch):
    edges = Edges(random_edges(SOURCES, TARGETS, EDGES), SOURCES, TARGETS)
    # features that tie, and a gradient that is the same for all heads
    x, weight = torch.randint(3, (SOURCES, heads, 5)).float(), torch.rand(EDGES, heads)
    grad, found, pages = torch.randn(TARGETS, 1, 5).expand(-1, heads, -1), [], []
    monkeypatch.setattr(adjoint, 'on_huge_pages', lambda tensor: pages.append(tensor.shape) or tensor)
    for least in (2**30, 0):
        monkeypatch.setattr(adjoint, 'LEAST_BYTES', least)
        pages.clear()
        given, of_edges = x.clone().requires_grad_(), weight.clone().requires_grad_()
        operands = {'x': given, 'edge_weight': of_edges}
        out = aggregate(WEIGHTED_NEIGHBOURS, edges, operands, heads, 5, reduce)
        found.append(torch.autograd.grad(out, (given, of_edges), grad))
        assert ((TARGETS, heads * 5) in pages) == (least == 0)
    torch.testing.assert_close(*found)
