"""What papers evaluate: every part is a benchmark that takes its options, on generated graphs and on data sets."""

import importlib
from pathlib import Path

import pytest

from pygfuse.bench.case import BENCHMARKS
from pygfuse.bench.cases import modules
from pygfuse.bench.columns import COLUMNS
from pygfuse.bench.runner import parsed
from pygfuse.bench.schema import Result
from pygfuse.bench.suites import SUITES, of_part, run_suite

PARTS = [(name, part) for name, suite in SUITES.items() for part in suite.parts]
NAMES = [f'{name}, {part.benchmark}' for name, part in PARTS]


def test_every_benchmark_is_registered_and_has_columns():
    for name, module in modules().items():
        importlib.import_module(module)
        assert name in BENCHMARKS
        assert name in COLUMNS


@pytest.mark.parametrize('root', [None, 'data'])
@pytest.mark.parametrize(('name', 'part'), PARTS, ids=NAMES)
def test_parts_take_their_options(name, part, root):
    importlib.import_module(modules()[part.benchmark])
    benchmark = BENCHMARKS[part.benchmark]
    options = parsed(benchmark, part.arguments(root))
    cases = list(benchmark.parameters(options))
    assert cases
    on_data = root is not None and part.on_data is not None
    assert on_data == any('data' in argument for argument in part.arguments(root))


def test_no_suite_runs_a_benchmark_twice():
    for suite in SUITES.values():
        names = [part.benchmark for part in suite.parts]
        assert len({*names}) == len(names)


def test_parts_have_files_of_their_own():
    assert of_part(Path('some/found.json'), 'hag') == Path('some/found-hag.json')


def test_a_part_that_fails_leaves_the_others(monkeypatch, capsys):
    ran: list[str] = []

    def run(name, *_, **__):
        ran.append(name)
        if len(ran) == 1:
            raise ModuleNotFoundError("No module named 'pandas'")

    monkeypatch.setattr('pygfuse.bench.suites.run', run)
    assert run_suite('graphiler', [], 'suite') == 1
    assert ran == [part.benchmark for part in SUITES['graphiler'].parts]
    assert f"{ran[0]} fails: ModuleNotFoundError: No module named 'pandas'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize('name', SUITES)
def test_suites_run(name, tmp_path, capsys):
    pytest.importorskip('matplotlib')
    files = ['--json', str(tmp_path / 'found.json'), '--plot', str(tmp_path / 'found.svg')]
    assert run_suite(name, ['--quick', *files], 'suite') == 0
    shown = capsys.readouterr().out
    for part in SUITES[name].parts:
        assert part.asks in shown
        result = Result.read(tmp_path / f'found-{part.benchmark}.json')
        assert result.rows
        assert (tmp_path / f'found-{part.benchmark}.svg').exists() == any(row.times for row in result.rows)
