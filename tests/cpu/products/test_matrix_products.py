"""Products of chunks by either library of torch's: the same numbers."""

from __future__ import annotations

import pytest
import torch

from pygfuse.cpu.products import matrix_products


@pytest.fixture(params=[True, False], ids=['oneDNN', 'BLAS'])
def library(request, monkeypatch) -> None:
    if request.param and not hasattr(torch.ops.mkldnn, '_linear_pointwise'):
        pytest.skip('this build of torch has no oneDNN')
    monkeypatch.setattr(matrix_products, '_has_faster_onednn', lambda: request.param)
    monkeypatch.setattr(matrix_products, '_LEAST_OPERATIONS', 1)


# rows, width, D
SHAPES = [(1, 16, 16), (700, 128, 128), (300, 100, 17), (5, 3, 2)]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_products(shape, dtype, library):
    torch.manual_seed(0)
    rows, width, features = shape
    values, weight = torch.randn(rows, features, dtype=dtype), torch.randn(width, features, dtype=dtype)
    bias, grad, out = torch.randn(width, dtype=dtype), torch.randn(rows, width, dtype=dtype), torch.empty(rows, width)
    out = out.to(dtype)
    expected = values.double() @ weight.double().t()
    tolerance = {'rtol': 1e-5, 'atol': 1e-4} if dtype == torch.float32 else {'rtol': 1e-12, 'atol': 1e-12}

    def check(found, right):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), right, **tolerance)

    check(matrix_products.mapped(values, weight, bias, out), expected + bias.double())
    check(matrix_products.mapped(values, weight, None, out), expected)
    base = torch.randn(rows, width, dtype=dtype)
    check(matrix_products.add_mapped(values, weight, base.clone()), base.double() + expected)
    check(matrix_products.mapped_back(grad, weight), grad.double() @ weight.double())
    total = torch.ones(width, features, dtype=dtype)
    matrix_products.add_over_rows(grad, values, total)
    check(total, 1 + grad.double().t() @ values.double())


@pytest.mark.parametrize('features', [1, 3])
def test_sums_over_many_equal_rows_keep_their_digits(features):
    """Added one after another, equal numbers lose digits each in the same direction."""
    grad, values = torch.full((8192, 16), 0.1), torch.full((8192, features), 0.7)
    total = torch.zeros(16, features)
    for _ in range(12):
        matrix_products.add_over_rows(grad, values, total)
    expected = 12 * grad.double().t() @ values.double()
    torch.testing.assert_close(total.double(), expected, rtol=2e-6, atol=0)
