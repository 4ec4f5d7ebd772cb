"""Products of rows with a matrix for each type: as a loop over rows computes them, with all gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.ops.typed.typed_product import TypedRows, typed_product

NODES, WRITTEN = 7, 5
# a type without rows, and types whose rows share places of the result
ROWS = TypedRows(
    (0, 4, 4, 9), torch.tensor([0, 3, 5, 6, 6, 2, 2, 1, 0]), torch.tensor([0, 1, 2, 4, 4, 0, 1, 2, 3]), WRITTEN
)
SHAPES = {'dense': (3, 4, 6), 'blocks': (3, 2, 2, 3), 'wide blocks': (3, 2, 2, 9)}


def given(shape: tuple[int, ...], rows: int = NODES) -> list[Tensor]:
    """Features, weight and bias."""
    blocks = shape[1] if len(shape) == 4 else 1
    shapes = (rows, blocks * shape[-2]), shape, (shape[0], blocks * shape[-1])
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


def by_rows(x: Tensor, weight: Tensor, rows: TypedRows, bias: Tensor | None) -> Tensor:
    """The definition."""
    if weight.dim() == 4:
        weight = torch.stack([torch.block_diag(*blocks) for blocks in weight])
    out = [x.new_zeros(weight.shape[2]) for _ in range(rows.count)]
    for kind in range(len(weight)):
        for place in range(rows.bounds[kind], rows.bounds[kind + 1]):
            read = place if rows.read is None else int(rows.read[place])
            written = place if rows.written is None else int(rows.written[place])
            out[written] = out[written] + x[read] @ weight[kind] + (0 if bias is None else bias[kind])
    return torch.stack(out)


@pytest.mark.parametrize('with_bias', [False, True])
@pytest.mark.parametrize('name', SHAPES)
@pytest.mark.parametrize('places', ['given', 'read', 'written', 'none'])
def test_values_and_gradients(places, name, with_bias):
    rows = ROWS
    if places in ('written', 'none'):
        rows = rows._replace(read=None)
    if places in ('read', 'none'):
        rows = rows._replace(written=None, count=9)
    x, weight, bias = given(SHAPES[name], NODES if rows.read is not None else 9)
    leaves = (x, weight, bias) if with_bias else (x, weight)
    found, expected = (function(x, weight, rows, bias if with_bias else None) for function in (typed_product, by_rows))
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(out, leaves, grad) for out in (found, expected)))


def test_rows_of_a_type_in_several_blocks():
    count = 2 * ROWS_AT_ONCE + 3
    rows = TypedRows((0, count - 5, count), None, None, count)
    x, weight, bias = given((2, 3, 2), count)
    expected = torch.cat([x[:-5] @ weight[0] + bias[0], x[-5:] @ weight[1] + bias[1]])
    found, leaves = typed_product(x, weight, rows, bias), (x, weight, bias)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(out, leaves, grad) for out in (found, expected)))


@pytest.mark.parametrize('name', SHAPES)
def test_second_derivatives(name):
    assert torch.autograd.gradgradcheck(
        lambda x, weight, bias: typed_product(x, weight, ROWS, bias), given(SHAPES[name])
    )


def test_a_gradient_to_differentiate_where_one_argument_is_computed_from_another():
    x = given((1, 7, 7))[0]
    rows, grad = TypedRows((0, 7), None, None, 7), torch.randn_like(x, requires_grad=True)
    found, expected = (
        torch.autograd.grad(function(x, x.sin().unsqueeze(0), rows, None), x, grad, create_graph=True)[0]
        for function in (typed_product, by_rows)
    )
    torch.testing.assert_close(found, expected)
