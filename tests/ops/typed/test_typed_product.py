from __future__ import annotations

import itertools

import pytest
import torch

from pygfuse.graph.padded_types import padded_types
from pygfuse.ops.typed.typed_product import TypedRows, typed_product

# none, as many as some groups hold, one more, and too many for any
SIZES = [0, 1, 3, 4, 5, 16, 17, 64, 65] * 9
NODES, IN, OUT = 50, 6, 4


def rows_of(which: str, padded: bool) -> TypedRows:
    bounds = (0, *itertools.accumulate(SIZES))
    nodes = torch.randint(NODES, (bounds[-1],), generator=torch.Generator().manual_seed(0))
    groups = padded_types(bounds, nodes.device) if padded else None
    if which == 'gathered':
        return TypedRows(bounds, nodes, None, bounds[-1], groups)
    if which == 'scattered':
        return TypedRows(bounds, None, nodes, NODES, groups)
    return TypedRows(bounds, nodes, nodes.flip(0), NODES, groups)


def test_every_capacity_is_met():
    found = padded_types((0, *itertools.accumulate(SIZES)), torch.device('cpu'))
    assert [group.capacity for group in found.groups] == [4, 16, 64]
    assert len(found.others) == 9
    assert sum(len(group.kinds) for group in found.groups) == 9 * 7


@pytest.mark.parametrize('which', ['gathered', 'scattered', 'both'])
@pytest.mark.parametrize('form', ['whole', 'transposed', 'blocks', 'one column', 'wide blocks'])
@pytest.mark.parametrize('with_bias', [False, True])
def test_padded_types_are_those_of_their_own(which, form, with_bias):
    generator = torch.Generator().manual_seed(1)
    shape = {'blocks': (2, 3, 2), 'wide blocks': (2, 12, 9), 'one column': (IN, 1), 'transposed': (OUT, IN)}
    weight = torch.randn(len(SIZES), *shape.get(form, (IN, OUT)), generator=generator, dtype=torch.float64)
    weight.requires_grad_()
    used = weight.transpose(1, 2) if form == 'transposed' else weight
    out = used.shape[-1] * (2 if used.dim() == 4 else 1)
    width = used.shape[-2] * (2 if used.dim() == 4 else 1)
    bias = torch.randn(len(SIZES), out, generator=generator, dtype=torch.float64).requires_grad_()
    leaves = [weight, bias] if with_bias else [weight]
    found = []
    for padded in (False, True):
        rows = rows_of(which, padded)
        count = NODES if rows.read is not None else rows.bounds[-1]
        x = torch.randn(count, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
        product = typed_product(x, used, rows, bias if with_bias else None)
        grad = torch.randn(product.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        found.append([product, *torch.autograd.grad(product, [x, *leaves], grad)])
    torch.testing.assert_close(found[1], found[0])


def test_a_few_types_are_taken_one_by_one():
    assert padded_types([0, 1, 2, 3], torch.device('cpu')).groups == ()
