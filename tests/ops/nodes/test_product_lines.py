"""Lines in which products that follow one another are one launch."""

import pytest
import torch

from pygfuse.cpu.products import product_list
from pygfuse.ops.nodes.product_lines import ProductLines, contiguous, matrix


@pytest.fixture
def launches(monkeypatch):
    """The number of products in each launch."""
    found, run = [], product_list.multiply

    def counted(dtype, words, work):
        found.append(len(words) // product_list.WORDS)
        run(dtype, words, work)

    monkeypatch.setattr(product_list, 'multiply', counted)
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


def test_lines_run_in_their_order(launches):
    lines = lines_of(wait=False)
    # which reads the results: they are there
    lines.say('out = out + scale')
    found = lines.function('x, weight', 'out', {'scale': 2.0})(torch.ones(4, 3), torch.ones(2, 3))
    assert found.tolist() == [[5.0] * 2] * 4
    assert launches == [3]
