"""One library's layer in a comparison."""

import dataclasses
import time

import pytest
import torch

from pygfuse.bench.comparison import PRODUCT, Rules, contestant, let_settle, rows_of
from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import Layer, Training, check_fused
from pygfuse.bench.providers import PROVIDERS, Problem, Provider
from pygfuse.bench.timing import Step, interleaved

RULES = Rules(torch.device('cpu'), inference=False, repeats=5, seconds=1.0, limit=60)


@pytest.fixture
def problem() -> Problem:
    layer = Layer('GATConv', (8, 4), {'heads': 2}, features=8)
    return Problem('GATConv', layer, layer.plain(), Training(layer, *power_law(50, 500)), 2, 4)


def test_a_side_keeps_what_it_took(problem):
    pyg, ours = (contestant(PROVIDERS[name], problem, RULES) for name in ('PyG', 'pygfuse'))
    assert (pyg.name, pyg.width, ours.width) == ('PyG', 8, 8)
    found = {side.name: side.values() for side in (pyg, ours)}
    assert [*found['PyG']] == ['first call s', 'saved MB', 'peak MB']
    # 550 edges x 8 channels
    assert found['PyG']['saved MB'] > 4 * 550 * 8 / 1e6 > found['pygfuse']['saved MB'] > 0
    check_fused(ours.module)


def test_inference_keeps_nothing(problem):
    side = contestant(PROVIDERS['PyG'], problem, dataclasses.replace(RULES, inference=True))
    assert side.step.run().grad_fn is None
    assert [*side.values()] == ['first call s', 'peak MB']


def failing(problem: Problem) -> None:
    raise RuntimeError('out of memory\nand more')


def sleeping(problem: Problem) -> None:
    time.sleep(10)


@pytest.mark.parametrize(
    ('side', 'expected'),
    [
        (failing, 'RuntimeError: out of memory'),
        (sleeping, 'TimeoutError: longer than 1 s'),
        (lambda problem: None, None),
    ],
)
def test_a_side_that_fails_says_why(problem, side, expected):
    assert contestant(Provider('some', side), problem, dataclasses.replace(RULES, limit=1)) == expected


@pytest.mark.parametrize(('seconds', 'repeats'), [(1e-4, 5), (0.3, 3), (0.25, 4), (60.0, 3)])
def test_slow_sides_run_less_often(seconds, repeats):
    assert RULES.repeats_of(seconds) == repeats


def test_sides_wait_for_the_threads_of_others(monkeypatch):
    seen: list[str | float] = []
    monkeypatch.setattr(time, 'sleep', seen.append)
    monkeypatch.setattr(time, 'perf_counter', lambda: len(seen))
    steps = [Step(name, lambda name=name: seen.append(name), warmup=0) for name in 'ab']
    let_settle(steps, 0.02)
    assert interleaved(steps, 1) == {'a': [1], 'b': [1]}  # neither the wait nor the run after it is timed
    assert seen == [0.02, 'a', 'a', 0.02, 'b', 'b']


def test_rows_have_ratios_to_pyg_and_to_the_product():
    samples = {'PyG': [0.008], 'pygfuse': [0.002], PRODUCT: [0.001]}
    rows = {row.get('side'): row for row in rows_of({'graph': 'Cora'}, samples, {'pygfuse': {'peak MB': 5.0}})}
    assert rows['pygfuse'].ratios == {'PyG / this': 4.0, 'this / product': 2.0}
    assert rows['pygfuse'].get('peak MB') == 5.0
    assert rows['PyG'].ratios == {'PyG / this': 1.0, 'this / product': 8.0}
    assert rows[PRODUCT].ratios == {}
    assert rows[PRODUCT].key == f'Cora, {PRODUCT}'


def test_a_layer_that_runs_pygs_path_is_noticed(problem):
    fused = PROVIDERS['pygfuse'].side(problem).module
    fused.register_message_forward_hook(lambda *_: None)
    fused(problem.training.x, problem.training.edge_index)
    with pytest.raises(AssertionError):
        check_fused(fused)
    with pytest.raises(AssertionError, match='no fused layer'):
        check_fused(problem.plain)
