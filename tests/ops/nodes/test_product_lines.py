"""Lines in which products that follow one another are one launch."""

import pytest
import torch

from pygfuse.cpu.products import product_list
from pygfuse.ops.nodes.product_lines import ProductLines, contiguous, matrix


@pytest.fixture
def launches(monkeypatch):
    """The number of products in each launch."""
    found, run = [], product_list.multiply_listed

    def counted(dtype, listed, *given):
        found.append(listed.count)
        run(dtype, listed, *given)

    monkeypatch.setattr(product_list, 'multiply_listed', counted)
    return found


def lines_of(wait):
    lines = ProductLines('x')
    lines.prepare(contiguous(['x', 'weight']))
    lines.prepare('(rows, inner), width = x.shape, weight.shape[0]')
    lines.prepare('out, back, total = x.new_empty((rows, width)), x.new_empty((rows, inner)), x.new_empty(width)')
    sizes, weight = ('rows', 'inner', 'width'), matrix('weight', 'inner')
    lines.product(sizes, matrix('x', 'inner'), weight.turned, matrix('out', 'width'))
    lines.product(('rows', 'width', 'inner'), matrix('out', 'width'), weight, matrix('back', 'inner'))
    if wait:
        lines.wait()
    lines.column_sums('rows', 'width', matrix('out', 'width'), matrix('total', 'width'))
    return lines


def test_products_and_sums_of_columns(launches):
    x, weight = torch.randn(7, 5, dtype=torch.float64).t(), torch.randn(3, 7, dtype=torch.float64)
    out, back, total = lines_of(wait=True).function('x, weight', '(out, back, total)')(x, weight)
    torch.testing.assert_close(out, x @ weight.t())
    torch.testing.assert_close(back, out @ weight)
    torch.testing.assert_close(total, out.sum(0))
    assert launches == [2, 1]


def test_products_are_added_to_a_sum_of_blocks(launches):
    lines = ProductLines('x')
    lines.prepare('out = x.new_empty(len(x), 4)')
    out = matrix('out', 4)
    lines.sum_of_blocks('len(x)', 3, 4, 'x', out)
    lines.product(('len(x)', 12, 4), matrix('x', 12), matrix('weight', 4), out, addend=out)
    x, weight = torch.randn(7, 12, dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64)
    found = lines.function('x, weight', 'out')(x, weight)
    torch.testing.assert_close(found, x.view(7, 3, 4).sum(1) + x @ weight)
    assert launches == [2]


def test_lines_run_in_their_order(launches):
    lines = lines_of(wait=False)
    # which reads the results: they are there
    lines.say('out = out + scale')
    found = lines.function('x, weight', 'out', {'scale': 2.0})(torch.ones(4, 3), torch.ones(2, 3))
    assert found.tolist() == [[5.0] * 2] * 4
    assert launches == [3]


@pytest.mark.parametrize('is_large', [False, True])
def test_the_work_of_a_list_is_that_of_its_products(is_large, monkeypatch):
    found, run = [], product_list.multiply_listed
    monkeypatch.setattr(
        product_list, 'multiply_listed', lambda *arguments: found.append(arguments[-1]) or run(*arguments)
    )
    rows = 100_000 if is_large else 4
    lines_of(wait=False).function('x, weight', 'out')(torch.ones(rows, 3), torch.ones(2, 3))
    assert found == [2 * rows * 3 * 2 + rows * 2]
