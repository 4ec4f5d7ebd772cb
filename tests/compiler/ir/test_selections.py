"""Numbers at places of rows: by views where there are any, the same as by an index."""

from __future__ import annotations

import itertools

import pytest
import torch

from pygfuse.compiler.ir.selections import parts, selected

WIDTH = 12
ROW = range(WIDTH)
BLOCKS = {
    'all': [*ROW],
    'in a row': [3, 4, 5, 6],
    'one': [7],
    'one, again': [7] * 5,
    'each': [2, 2, 2, 3, 3, 3],
    'again': [*ROW, *ROW],
    'parts of rows': [1, 2, 5, 6, 9, 10],
    'parts of rows, later': [5, 6, 9, 10],
    'parts of rows, each': [4, 4, 5, 5, 10, 10, 11, 11],
    'parts of rows, again': [0, 1, 6, 7] * 3,
    'columns': [0, 4, 8],
    'across rows': [3, 4, 7, 8],
    'backwards': [*reversed(ROW)],
    'rows of rows': [0, 1, 5, 6],
    'any': [3, 1, 4, 1, 5, 9, 2, 6],
    'zeros': [0, -1, -1, 3, -1, 5],
    'zeros alone': [-1, -1],
    'zeros, again': [-1, 2, -1, 2],
    'nothing': [],
}


@pytest.mark.parametrize('shape', [(4, WIDTH), (4, 3, 4), (0, WIDTH), (0, 2, 6), (1, 2, 3, 2)])
@pytest.mark.parametrize('name', BLOCKS)
def test_numbers_and_gradients_are_those_of_an_index(name, shape):
    take = BLOCKS[name]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    padded = torch.nn.functional.pad(x.reshape(shape[0], WIDTH), (0, 1))
    expected = padded[:, torch.tensor([WIDTH if place < 0 else place for place in take], dtype=torch.int64)]
    found = selected(x, take)
    assert found.shape == (shape[0], len(take))
    assert torch.equal(found, expected)
    chosen = torch.randn_like(expected)
    of_found, of_expected = (torch.autograd.grad((out * chosen).sum(), x)[0] for out in (found, expected))
    torch.testing.assert_close(of_found, of_expected)


def test_all_short_rows_of_places():
    x = torch.arange(2 * 4).view(2, 4)
    for count in range(1, 5):
        for take in itertools.product(range(4), repeat=count):
            assert torch.equal(selected(x, take), x[:, torch.tensor(take)]), take


def test_a_number_without_rows():
    assert selected(torch.tensor(2.0), [0, 0]).tolist() == [[2.0, 2.0]]


def test_views_of_rows_copy_nothing():
    x = torch.randn(4, WIDTH)
    for name in ('all', 'in a row', 'one', 'one, again'):
        assert selected(x, BLOCKS[name]).untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), name


@pytest.mark.parametrize(
    'takes',
    [
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
        [[8, 9], [1, 2, 3]],
        [[0, 4, 8], [1, 2, 5, 6, 9, 10]],
        [[4, 4, 5, 5], [0, 1, 2, 3] * 2, [4, 5]],
        [[0, 1, 2], [2, 3]],
        [[0, 1], [5, 4]],
        [[1, 2, 5, 6, 9, 10], [0, 1]],
    ],
)
def test_parts_are_selections(takes):
    x = torch.randn(5, WIDTH, dtype=torch.float64, requires_grad=True)
    expected, found = [selected(x, take) for take in takes], parts(x, takes)
    chosen = [torch.randn_like(part) for part in expected]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    of_found, of_expected = (
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(out, chosen, strict=True)), x)[0]
        for out in (found, expected)
    )
    torch.testing.assert_close(of_found, of_expected)


def test_parts_that_are_apart_are_one_split():
    x = torch.randn(5, WIDTH, requires_grad=True)
    apart, together = parts(x, [[0, 1], [2, 3, 4]]), parts(x, [[0, 1], [1, 2]])
    assert apart[0].grad_fn.next_functions[0][0].name().startswith('Split')
    assert not together[0].grad_fn.next_functions[0][0].name().startswith('Split')
