from __future__ import annotations

import pytest
import torch

from pygfuse.cpu import adjoint
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
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
