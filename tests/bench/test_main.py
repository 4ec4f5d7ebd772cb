"""``python -m pygfuse.bench``."""

import subprocess
import sys

import pytest

from pygfuse.bench.__main__ import main
from pygfuse.bench.datasets import DATASETS
from pygfuse.bench.graphs import power_law
from pygfuse.bench.schema import Result

SMALL = ['--edges', '300', '--layers', 'GATConv', '--repeats', '3', '--providers', 'PyG', 'DGL', 'pygfuse']


@pytest.fixture
def without_dgl(monkeypatch):
    monkeypatch.setitem(sys.modules, 'dgl', None)


def test_layers_beside_one_another(without_dgl, tmp_path, capsys):
    pytest.importorskip('matplotlib')
    assert main([*SMALL, '--json', str(tmp_path / 'found.json'), '--plot', str(tmp_path / 'found.png')]) == 0
    shown = capsys.readouterr().out
    assert 'DGL is left out: it needs dgl (pip install' in shown
    assert 'power law, 300 edges  GATConv  PyG ' in shown
    assert (tmp_path / 'found.png').exists()
    result = Result.read(tmp_path / 'found.json')
    sides = {row.get('side'): row for row in result.rows}
    assert [*sides] == ['PyG', 'pygfuse', 'one CSR product']
    assert sides['pygfuse'].get('time').repeats == 3
    for name in ('PyG / this', 'this / product', 'saved MB', 'peak MB', 'first call s'):
        assert sides['pygfuse'].get(name) > 0
    assert str(tmp_path) not in result.command


@pytest.mark.slow
def test_data_sets(monkeypatch, capsys):
    roots: list[str] = []

    def load(root):
        roots.append(root)
        return power_law(20, 100)

    monkeypatch.setitem(DATASETS, 'Cora', load)
    assert main([*SMALL, '--data', 'Cora', '--root', 'somewhere', '--layers', 'GCNConv', 'SAGEConv']) == 0
    assert roots == ['somewhere']  # read once for all layers
    assert 'Cora   GCNConv' in capsys.readouterr().out


def test_inference(capsys):
    assert main([*SMALL, '--inference', '--layers', 'GCN']) == 0
    assert 'measured forward;' in capsys.readouterr().out


def test_other_benchmarks_by_name(capsys):
    assert main(['aggregations', '--quick']) == 0
    assert 'scattered' in capsys.readouterr().out


def test_unknown_names_are_refused_with_those_there_are(capsys):
    assert main(['unknown']) == 2
    said = capsys.readouterr().err
    assert "(got 'unknown')" in said
    for name in ('understanding', 'fusegnn', 'hag', 'epp', 'graphiler', 'ablation', 'typed'):
        assert name in said


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (['--repeats', '0'], "expected a number of at least 1 (got '0')"),
        (['--layers', 'NoConv'], "invalid choice: 'NoConv'"),
        (['--plot', 'found.gif'], 'ends in .png or .svg'),
        (['--suite', 'epp', '--plot', 'found.gif'], 'ends in .png or .svg'),
        (['--suite', 'epp', '--unknown'], 'unrecognized arguments: --unknown'),
        (['--suite', 'unknown'], "invalid choice: 'unknown'"),
    ],
)
def test_wrong_options(arguments, expected, capsys):
    with pytest.raises(SystemExit, match='2'):
        main(arguments)
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        ([], 'graphiler'),
        (['hag'], '--sequences'),
        (['--suite', 'hag'], 'hag_search: '),
        (['--root', 'data', '--suite', 'epp'], 'partial_forward: '),
    ],
)
def test_help(arguments, expected, capsys):
    with pytest.raises(SystemExit, match='0'):
        main([*arguments, '--help'])
    assert expected in capsys.readouterr().out


@pytest.mark.slow
def test_from_a_shell(tmp_path):
    command = [sys.executable, '-m', 'pygfuse.bench', '--quick', '--json', str(tmp_path / 'found.json')]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert Result.read(tmp_path / 'found.json').command == 'python -m pygfuse.bench --quick --json JSON'
    assert 'pygfuse' in done.stdout
