"""Tables and figures in the documentation are those of the results, and benchmarks run."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pygfuse.bench.schema import Result
from tests.support.scripts import run_script

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / 'benchmarks'
TEXT = """# A library

<!-- rendered: knn -->

<!-- end -->

A search takes [1.3 ms][knn], a quarter of the [5.0 ms][brute force].

[knn]: <benchmarks/results/knn.json#1 x 1,024, 64, 20: pygfuse>
[brute force]: <benchmarks/results/knn.json#1 x 1,024, 64, 20: brute force>
"""


@pytest.fixture
def render(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module('render')


@pytest.fixture
def repository(tmp_path, render) -> Path:
    """A repository of a README and one result, its table filled."""
    (tmp_path / 'benchmarks/results').mkdir(parents=True)
    shutil.copy(BENCHMARKS / 'results/knn.json', tmp_path / 'benchmarks/results')
    (tmp_path / 'README.md').write_text(TEXT)
    assert render.problems(tmp_path, write=True) == []
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def test_documents_hold_what_was_measured(render):
    assert render.problems(ROOT, write=False) == []


def test_check_is_a_command():
    done = run_script(BENCHMARKS / 'render.py', '--check')
    assert (done.returncode, done.stderr) == (0, '')


def test_tables_are_filled(render, repository):
    text = (repository / 'README.md').read_text()
    assert '| 1 x 1,024 | 64 | 20 | 1.3 [1.3, 1.6] | 5.0 [5.0, 5.2] | 3.8x |  |  |' in text
    assert render.problems(repository, write=False) == []


def test_a_stale_table_fails(render, repository):
    edit(repository / 'README.md', '1.3 [1.3, 1.6]', '1.2 [1.1, 1.6]')
    (problem,) = render.problems(repository, write=False)
    assert 'a table is stale' in problem


@pytest.mark.parametrize(
    ('before', 'after', 'expected'),
    [
        ('[1.3 ms][knn]', '[1.2 ms][knn]', '[1.2 ms][knn] is'),
        ('[1.3 ms][knn]', '1.3 ms', 'quotes nothing'),
        ('64, 20: pygfuse', '64, 21: pygfuse', 'no row'),
        ('64, 20: pygfuse', '64, 20: PyG', "no 'PyG'"),
        ('knn.json#', 'nothing.json#', 'nothing.json'),
        ('A search', 'A step takes 7 ms, a search', "no result is named for '7 ms'"),
        ('A search', 'Ours is 4x faster: a search', "no result is named for '4x'"),
        ('rendered: knn', 'rendered: nothing', 'no result nothing.json'),
        ('rendered: knn', 'rendered: knn, tiny', "no view 'tiny'"),
        ('<!-- end -->', '', 'without an end'),
    ],
)
def test_a_figure_or_table_without_its_result_fails(render, repository, before, after, expected):
    edit(repository / 'README.md', before, after)
    problems = render.problems(repository, write=False)
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ('value', 'text', 'equal'),
    [
        (0.39, '0.4', True),
        (0.34, '0.4', False),
        (1175.7, '1,176 MB', True),
        (57.45, '57 times', True),
        (57.6, '57 times', False),
        (0.386, '39 %', True),
        (0.386, '38 %', False),
        (2.5, 'none', False),
    ],
)
def test_figures_are_compared_to_their_digits(render, value, text, equal):
    assert render.quoted(value, text) is equal


def test_results_are_read_as_written(tmp_path):
    for path in sorted((BENCHMARKS / 'results').glob('*.json')):
        if not path.name.startswith('group-'):  # records for choosers, of a form of their own
            Result.read(path).write(tmp_path / path.name)
            assert (tmp_path / path.name).read_text() == path.read_text()


def test_without_torch():
    code = (
        'import runpy, sys\n'
        'sys.modules["torch"] = None\n'
        f'sys.argv, sys.path[0] = [{str(BENCHMARKS / "render.py")!r}, "--check"], {str(BENCHMARKS)!r}\n'
        'runpy.run_path(sys.argv[0], run_name="__main__")'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, '')


@pytest.mark.slow
@pytest.mark.parametrize(
    'command',
    [
        ['convs.py', '--convs', 'GATConv', 'FAConv'],
        ['memory.py', '--convs', 'GATConv'],
        ['break_even.py', '--convs', 'GCNConv'],
        ['scaling.py'],
        ['run.py', 'mini_batches', '--convs', 'SAGEConv'],
        ['run.py', 'bags_of_words'],
        ['run.py', 'busy_cores'],
        ['run.py', 'knn'],
        ['run.py', 'radius'],
        ['run.py', 'typed'],
        ['run.py', 'map_order'],
        ['run.py', 'reddit_scale', '--communities', '4'],
        ['run.py', 'local_order'],
        ['run.py', 'compiled', '--convs', 'LGConv'],
        ['run.py', 'edge_networks'],
        ['run.py', 'force_training'],
        ['run.py', 'ablation', '--convs', 'GATConv'],
        ['run.py', 'dgcnn', '--networks', 'linear'],
        ['run.py', 'hag', '--graphs', 'small hub'],
        ['run.py', 'hag_search', '--graphs', 'small hub'],
        ['run.py', 'execution_paths'],
        ['run.py', 'partial_forward'],
        ['run.py', 'aggregations'],
    ],
    ids=' '.join,
)
def test_benchmarks_run_and_write_results(render, tmp_path, command, request):
    if 'mini_batches' in command:
        request.getfixturevalue('needs_sampler')
    script, *options = command
    done = run_script(BENCHMARKS / script, *options, '--quick', '--out', tmp_path / 'found.json')
    assert done.returncode == 0, done.stderr
    result = Result.read(tmp_path / 'found.json')
    assert result.rows
    assert str(tmp_path) not in result.command
    assert importlib.import_module('suite.columns').rendered(result) in done.stdout


_EXAMPLE = """
import torch
from torch_geometric.datasets import TUDataset
from torch_geometric.nn import GCNConv

graph = TUDataset('.', 'PROTEINS')[0]
model = torch.nn.Sequential(GCNConv(3, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(type(model[0]).__module__)
while True:
    optimizer.zero_grad()
    loss = model[0](graph.x, graph.edge_index).square().mean()
    loss.backward()
    optimizer.step()
    print(f'{loss:.4f}')
"""


@pytest.mark.slow
def test_an_example_of_pyg_runs_with_its_models_fused(tmp_path):
    (tmp_path / 'examples').mkdir()
    (tmp_path / 'examples' / 'one.py').write_text(_EXAMPLE)
    options = ['--pyg', tmp_path, '--examples', 'one', '--seconds', '0.2', '--repeats', '1']
    done = run_script(BENCHMARKS / 'run.py', 'pyg_examples', *options, '--out', tmp_path / 'found.json')
    assert done.returncode == 0, done.stderr
    (row,) = Result.read(tmp_path / 'found.json').rows
    alike, both = map(int, row.values['alike'].split(' of '))
    # the line that names the class, and no other
    assert both > 3
    assert alike == both - 1
    assert row.ratios['PyG / pygfuse'] > 0


@pytest.mark.slow
def test_equal_bits_are_told_from_others(tmp_path):
    stored = tmp_path / 'bits.json'
    only = ['--only', r'SAGEConv\(in_channels=16, out_channels=8\) / odd / float32']
    assert run_script(BENCHMARKS / 'bits.py', '--store', stored, *only).returncode == 0
    same = run_script(BENCHMARKS / 'bits.py', '--compare', stored, *only)
    assert (same.returncode, '1 cases: equal bits' in same.stdout) == (0, True), same.stdout
    found = json.loads(stored.read_text())
    (case,) = found['bits'].values()
    case['step 1: gradient of x'] = 'another'
    stored.write_text(json.dumps(found))
    other = run_script(BENCHMARKS / 'bits.py', '--compare', stored, *only)
    assert (other.returncode, 'step 1: gradient of x has other bits' in other.stdout) == (1, True), other.stdout
