"""Launches that follow one another are one call, with the numbers of each by itself."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool

import pytest
import torch

from pygfuse.codegen.launch_lines import LaunchLines
from pygfuse.cpu.compilation.in_turn import InTurn
from pygfuse.cpu.few_edges.sums import Summed, write_sum
from pygfuse.cpu.products import product_list
from pygfuse.ops.nodes.product_lines import ProductLines, matrix

OF, WIDTH = (torch.float64, torch.device('cpu')), 3
EDGE_INDEX = torch.tensor([[0, 1, 2, 1], [1, 2, 1, 0]])
X = torch.arange(9, dtype=torch.float64).view(3, WIDTH)
WEIGHT = torch.arange(1, 10, dtype=torch.float64).view(WIDTH, WIDTH)
EXPECTED = torch.zeros(3, WIDTH, dtype=torch.float64).index_add(0, EDGE_INDEX[1], X[EDGE_INDEX[0]] @ WEIGHT) @ WEIGHT
ARGUMENTS = 'edge_index, target_row, num_sources, num_targets, x, weight'


@pytest.fixture(params=[False, True], ids=['together', 'by themselves'])
def most(request, monkeypatch):
    """Whether each launch is run by itself, as one is that several threads share."""
    monkeypatch.setattr(product_list, 'MOST_OF_ONE', 0 if request.param else 2**60)


def written():
    """A product, a sum along edges that reads it and a product that reads that; nothing between is a tensor."""
    lines, sizes = ProductLines('x', OF), ('num_sources', WIDTH, WIDTH)
    lines.reserve('mapped', f'num_sources * {WIDTH}')
    lines.reserve('sums', f'num_targets * {WIDTH}', 'kept')
    lines.reserve('twice', f'num_targets * {WIDTH}')
    lines.product(sizes, matrix('x', WIDTH), matrix('weight', WIDTH), matrix('mapped', WIDTH))
    write_sum(lines, Summed(torch.float64, WIDTH, 'sum'), 'mapped', 'sums')
    lines.prepare(f'out = x.new_empty(num_targets, {WIDTH})')
    lines.product(sizes, matrix('sums', WIDTH), matrix('weight', WIDTH), matrix('twice', WIDTH))
    lines.rename('other', 'twice')
    lines.sum_of_two('num_targets', WIDTH, matrix('twice', WIDTH), matrix('other', WIDTH), matrix('out', WIDTH))
    lines.wait()
    return lines


def test_launches_read_what_those_before_have_written(most):
    lines = written()
    assert [*lines.rooms] == ['rows_0', 'kept_1']
    run = lines.function(ARGUMENTS, 'out, num_added, kept_1')
    # a call leaves nothing to the next
    for scale in (1.0, 3.0):
        out, num_added, kept = run(EDGE_INDEX, 1, 3, 3, scale * X, WEIGHT)
        torch.testing.assert_close(out, 2 * scale * EXPECTED)
        torch.testing.assert_close(kept.view(3, WIDTH) @ WEIGHT, scale * EXPECTED)
        assert num_added == EDGE_INDEX.shape[1]


def test_other_lines_read_what_is_kept(most):
    lines = written()
    kept = lines.function(ARGUMENTS, 'kept_1')(EDGE_INDEX, 1, 3, 3, X, WEIGHT)
    others = ProductLines('x', OF)
    others.place('kept_1', lines.rooms['kept_1'])
    others.prepare('out = x.new_empty(x.shape)')
    others.product((3, WIDTH, WIDTH), matrix('sums', WIDTH), matrix('weight', WIDTH), matrix('out', WIDTH))
    torch.testing.assert_close(others.function('x, weight, kept_1', 'out')(X, WEIGHT, kept), EXPECTED)


def test_what_a_launch_refuses(most):
    run = written().function(ARGUMENTS, 'out')
    with pytest.raises(IndexError, match='names a node that is not there'):
        run(EDGE_INDEX + 1, 1, 3, 3, X, WEIGHT)
    torch.testing.assert_close(run(EDGE_INDEX, 1, 3, 3, X, WEIGHT), 2 * EXPECTED)


def test_threads_call_at_the_same_time():
    run = written().function(ARGUMENTS, 'out')
    scales = [float(k) for k in range(1, 9)]
    with ThreadPool(4) as pool:
        for _ in range(20):
            found = pool.map(lambda scale: run(EDGE_INDEX, 1, 3, 3, scale * X, WEIGHT), scales)
            for scale, out in zip(scales, found, strict=True):
                torch.testing.assert_close(out, 2 * scale * EXPECTED)


def test_lines_without_launches():
    lines = LaunchLines(InTurn)
    lines.once('y = x + 1', 'y = x + 1')
    lines.say('y = y * 2')
    assert lines.function('x', 'y')(3) == 8
