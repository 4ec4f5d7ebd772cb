from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from pygfuse import linear
from pygfuse.linear import linear_of_rows


@pytest.mark.parametrize('with_bias', [False, True])
@pytest.mark.parametrize('count', [0, 3, 500])
def test_a_linear_map_of_rows_and_its_gradients(count, with_bias, monkeypatch):
    monkeypatch.setattr(linear, 'BLOCK_BYTES', 1)  # blocks of 64 rows
    rows = torch.randperm(700)[:count].sort().values
    given = [torch.randn(700, 5, dtype=torch.double), torch.randn(4, 5, dtype=torch.double)]
    given += [torch.randn(4, dtype=torch.double)] if with_bias else []
    found = [tensor.clone().requires_grad_() for tensor in given]
    expected = [tensor.clone().requires_grad_() for tensor in given]
    out, reference = linear_of_rows(found[0], rows, *found[1:]), F.linear(expected[0][rows], *expected[1:])
    torch.testing.assert_close(out, reference)
    out.square().sum().backward()
    reference.square().sum().backward()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_it_can_be_differentiated_twice():
    x, weight, rows = torch.randn(9, 3).double(), torch.randn(2, 3).double(), torch.tensor([1, 4, 5])
    x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x, weight: linear_of_rows(x, rows, weight).tanh(), (x, weight))
