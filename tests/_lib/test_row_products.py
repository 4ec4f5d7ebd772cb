from __future__ import annotations

import pytest
import torch

from pygfuse._lib import row_products
from pygfuse._lib.row_products import sum_over_rows


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(row_products, 'ROWS_AT_ONCE', 4)


def test_it_keeps_the_digits_of_a_long_sum():
    first, second = torch.rand(1_000_000, 4), torch.rand(1_000_000, 8)
    expected = first.double().t() @ second.double()
    assert float(((sum_over_rows(first, second) - expected) / expected).abs().max()) < 1e-6


@pytest.mark.parametrize('rows', [0, 1, 7, 8, 11, 12, 40])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_a_product(small_blocks, rows, dtype):
    first, second = torch.randn(rows, 3).to(dtype), torch.randn(2, rows).to(dtype).t()
    torch.testing.assert_close(sum_over_rows(first, second), first.t() @ second)
    torch.testing.assert_close(
        sum_over_rows(second[:, :1].expand(-1, 5), first), second[:, :1].expand(-1, 5).t() @ first
    )


def test_it_is_differentiated_twice(small_blocks):
    given = torch.randn(11, 3, requires_grad=True), torch.randn(11, 2, requires_grad=True)
    found = []
    for product in (sum_over_rows, lambda first, second: first.t() @ second):
        once = torch.autograd.grad(product(*given).tanh().sum(), given, create_graph=True)
        found.append((*once, *torch.autograd.grad(sum(grad.square().sum() for grad in once), given)))
    torch.testing.assert_close(*found)


def test_it_is_traced_and_batched(small_blocks):
    first, second = torch.randn(5, 11, 3), torch.randn(5, 11, 2)
    torch.testing.assert_close(torch.vmap(sum_over_rows)(first, second), first.mT @ second)
    compiled = torch.compile(sum_over_rows, backend='aot_eager', fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(first[0], second[0]), first[0].t() @ second[0])
    with torch._subclasses.FakeTensorMode():
        assert sum_over_rows(torch.empty(11, 3), torch.empty(11, 2)).shape == (3, 2)
