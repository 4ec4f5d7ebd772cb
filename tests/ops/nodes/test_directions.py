"""Rows of length one and those times a number: as PyTorch's operators compute them, with all gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from pygfuse.cpu.nodes import directions as kernels
from pygfuse.ops.nodes.directions import DIRECTIONS, directions
from pygfuse.program.program import SOURCE, TARGET


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


SHAPES = [(1, 1), (3, 5), (1000, 64), (257, 300), (10, 700)]


def drawn(rows: int, channels: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + channels)
    x = torch.randn(rows, channels, generator=generator, dtype=dtype)
    return x.requires_grad_(), torch.full((1,), -0.7, dtype=dtype, requires_grad=True)


def by_torch(x: torch.Tensor, beta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x_norm = F.normalize(x, dim=-1)
    return x, x_norm, beta * x_norm


@pytest.mark.parametrize('shape', SHAPES)
def test_values_and_gradients(shape):
    x, beta = drawn(*shape)
    grads = [torch.randn_like(x) for _ in range(3)]
    both = [function(x, beta) for function in (directions, by_torch)]
    torch.testing.assert_close(*both)
    torch.testing.assert_close(*(torch.autograd.grad(found, (x, beta), grads) for found in both))


@pytest.mark.parametrize('read', [[0], [1], [2], [1, 2], [0, 2]])
def test_results_that_nobody_reads(read):
    x, beta = drawn(30, 7)
    grads, found = [torch.randn_like(x) for _ in read], []
    for function in (directions, by_torch):
        out = function(x, beta)
        given = torch.autograd.grad([out[k] for k in read], (x, beta), grads, materialize_grads=True)
        found.append(given)
    torch.testing.assert_close(*found)


def test_single_precision_has_the_digits_of_torch():
    x, beta = drawn(500, 96, torch.float32)
    grads = [torch.randn_like(x) for _ in range(3)]
    exact = by_torch(x.double(), beta.double())
    errors = []
    for function in (directions, by_torch):
        out = function(x, beta)
        found = [*out, *torch.autograd.grad(out, (x, beta), grads)]
        wanted = [*exact, *torch.autograd.grad(exact, (x, beta), [grad.double() for grad in grads], retain_graph=True)]
        errors.append([float((one - other).detach().square().mean()) for one, other in zip(found, wanted, strict=True)])
    # of one number, the gradient of the number, the error is luck
    assert all(ours <= 4 * theirs for ours, theirs in zip(*(found[:-1] for found in errors), strict=True))
    assert errors[0][-1] < 1e-10 * 500 * 96


@pytest.mark.parametrize('value', [0.0, 1e-20, 2e-13, float('inf'), float('nan')])
def test_rows_without_a_direction(value):
    x, beta = drawn(5, 4, torch.float32)
    with torch.no_grad():
        x[2] = value
    grads, found = [torch.randn_like(x) for _ in range(3)], []
    for function in (directions, by_torch):
        out = function(x, beta)
        found.append([*out, *torch.autograd.grad(out, (x, beta), grads)])
    torch.testing.assert_close(*found, equal_nan=True)


@pytest.mark.parametrize('value', [0.0, 2e-13])
def test_operands_of_rows_without_a_direction(value):
    x, beta = drawn(5, 4)
    with torch.no_grad():
        x[2] = value
    _, *operands = by_torch(x, beta)
    grads, rows = [torch.randn_like(x) for _ in operands], {SOURCE: x, TARGET: x}
    expected = torch.autograd.grad(operands, (x, beta), grads)
    with torch.no_grad():
        made = dict(zip(DIRECTIONS.reads, DIRECTIONS.compute(rows, [beta]), strict=True))
        found = DIRECTIONS.adjoint(dict(zip(made, grads, strict=True)), made, rows, [beta])
    torch.testing.assert_close(tuple(made.values()), tuple(operands))
    torch.testing.assert_close((found[SOURCE], found[0]), expected)


def test_second_derivatives():
    assert torch.autograd.gradgradcheck(directions, drawn(4, 3))


def test_rows_that_are_not_contiguous():
    x, beta = drawn(9, 6)
    turned = x.detach().t().contiguous().t().requires_grad_()
    found = torch.autograd.grad(sum(part.square().sum() for part in directions(turned, beta)), turned)
    torch.testing.assert_close(found, torch.autograd.grad(sum(part.square().sum() for part in by_torch(x, beta)), x))


def test_sums_over_many_rows_keep_their_digits():
    x, beta = torch.ones(300_000, 1), torch.ones(1, requires_grad=True)
    grad = torch.rand_like(x)
    directions(x, beta)[2].backward(grad)
    torch.testing.assert_close(beta.grad, grad.double().sum().float().view(1), rtol=6e-7, atol=0.0)


def test_where_no_kernel_computes_them(monkeypatch):
    x, beta = drawn(5, 3, torch.float32)
    monkeypatch.setattr(kernels, 'directions', None)
    for given in ((x.bfloat16(), beta.bfloat16()), (x.unsqueeze(0), beta), (x, beta.double())):
        torch.testing.assert_close(directions(*given), by_torch(*given))
    compiled = torch.compile(lambda *given: directions(*given)[1], backend='eager')
    torch.testing.assert_close(compiled(x, beta), by_torch(x, beta)[1])
