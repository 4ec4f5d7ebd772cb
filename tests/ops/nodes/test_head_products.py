"""The dots of heads with vectors: as PyTorch's operators compute them, with all gradients."""

import pytest
import torch

from pygfuse.cpu.compilation import team
from pygfuse.ops.nodes.head_products import head_products

SHAPES = [(1, 1, 1), (3, 1, 5), (1000, 4, 16), (300, 8, 100), (10, 1, 700), (257, 3, 7)]


def drawn(nodes: int, heads: int, channels: int, sets: int, dtype=torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(nodes + channels)
    shapes = [(nodes, heads, channels), *[(1, heads, channels)] * sets]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize('sets', [1, 2])
@pytest.mark.parametrize('shape', SHAPES)
def test_values_and_gradients(shape, sets):
    x, *vectors = drawn(*shape, sets)
    found, expected = head_products(x, *vectors), [x, *((x * vector).sum(dim=-1) for vector in vectors)]
    grads = [torch.randn_like(values) for values in expected]
    torch.testing.assert_close(list(found), expected)
    gradients = [torch.autograd.grad(values, (x, *vectors), grads) for values in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_strides_and_missing_gradients():
    x, first, second = drawn(9, 4, 6, 2)
    turned = x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    _, of_first, _ = head_products(turned, first, second)
    of_first.sum().backward()
    torch.testing.assert_close(turned.grad, first.detach().expand_as(x))
    torch.testing.assert_close(second.grad, torch.zeros_like(second))


def test_dots_that_nobody_reads():
    x, first, second = drawn(9, 4, 6, 2)
    rows, *_ = head_products(x, first, second)
    grad = torch.randn_like(x)
    of_x, of_first = torch.autograd.grad(rows, (x, first), grad)
    torch.testing.assert_close(of_x, grad)
    torch.testing.assert_close(of_first, torch.zeros_like(first))


def test_second_derivatives():
    assert torch.autograd.gradgradcheck(lambda *given: head_products(*given), drawn(4, 2, 3, 2))
    assert torch.autograd.gradcheck(lambda *given: head_products(*given)[1], drawn(4, 2, 3, 1))


def test_sums_over_many_nodes_keep_their_digits():
    """The gradient of a vector is summed over nodes, here of equal sign, to at most twice what float32 rounds."""
    x = torch.rand(300_000, 1, 2)
    vector = torch.rand(1, 1, 2, requires_grad=True)
    head_products(x, vector)[1].backward(torch.ones(300_000, 1))
    expected = x.double().sum(dim=0)
    assert ((vector.grad[0] - expected).abs() / expected).max() < 6e-7


@pytest.mark.parametrize('rows', [256, 257])
def test_few_rows_wake_nobody(rows, monkeypatch):
    """However many tiles a row has."""
    launches, run = [], team.run
    monkeypatch.setattr(team, 'run', lambda *given: [launches.append(given[2]), run(*given)])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x, vector = drawn(rows, 8, 256, 1, torch.float32)
        head_products(x, vector)[1].sum().backward()
    finally:
        torch.set_num_threads(before)
    assert launches == ([] if rows == 256 else [2, 2])


def test_where_no_kernel_computes_them():
    x, first, second = drawn(5, 2, 3, 2, torch.float32)
    assert head_products(x.bfloat16(), first.bfloat16()) is None
    assert head_products(x, first.double()) is None
    assert head_products(x[:0], first) is None
    assert torch.compile(lambda *given: head_products(*given) is None, backend='eager')(x, first, second)
