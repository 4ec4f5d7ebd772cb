"""Results as bars."""

import argparse
import sys

import pytest

from pygfuse.bench import plots
from pygfuse.bench.machine import machine
from pygfuse.bench.schema import Result, Row
from pygfuse.bench.timing import Spread

SIDES = [
    Row({'graph': 'Cora', 'layer': 'GATConv', 'side': 'PyG'}, {'time': Spread(9.0, 8.0, 10.0)}, {}, {'peak MB': 50.0}),
    Row({'graph': 'Cora', 'layer': 'GATConv', 'side': 'ours'}, {'time': Spread(2.0)}, {}, {'peak MB': 5.0}),
    Row({'graph': 'Cora', 'layer': 'GATConv', 'side': 'one CSR product'}, {'time': Spread(1.0)}),
]
CASES = [Row({'layer': name}, {'PyG': Spread(3.0), 'pygfuse': Spread(1.0)}, {}, {'edges': 5}) for name in 'ab']


def result(rows) -> Result:
    return Result('layers', 'python -m pygfuse.bench', '2026-01-01', machine(), {}, rows)


def test_a_row_is_a_side_or_a_case():
    found = plots.bars_of(SIDES)
    assert {side: spread.median for side, spread in found['ms']['Cora, GATConv'].items()} == {
        'PyG': 9.0,
        'ours': 2.0,
        'one CSR product': 1.0,
    }
    assert found['MB at the peak'] == {'Cora, GATConv': {'PyG': 50.0, 'ours': 5.0}}
    assert {case: [*sides] for case, sides in plots.bars_of(CASES)['ms'].items()} == {
        'a': ['PyG', 'pygfuse'],
        'b': ['PyG', 'pygfuse'],
    }
    assert 'MB at the peak' not in plots.bars_of(CASES)


def test_numbers_say_of_what():
    row = Row({'edges': 10_000, 'edge_index': 'new'}, {'PyG': Spread(3.0)})
    assert [*plots.bars_of([row])['ms']] == ['10,000 edges, new']


@pytest.mark.parametrize(('value', 'shown'), [(0.01234, '0.0123'), (12.34, '12.3'), (123.4, '123'), (6663.5, '6,664')])
def test_values_are_written_in_short(value, shown):
    assert plots.in_short(value) == shown


@pytest.mark.parametrize('rows', [SIDES, CASES], ids=['sides', 'cases'])
@pytest.mark.parametrize(('suffix', 'begin'), [('png', b'\x89PNG'), ('svg', b'<?xml')])
def test_plots_are_written(tmp_path, rows, suffix, begin):
    pytest.importorskip('matplotlib')
    plots.draw(result(rows), tmp_path / f'found.{suffix}')
    written = (tmp_path / f'found.{suffix}').read_bytes()
    assert written.startswith(begin)
    if suffix == 'svg':
        assert b'<path' in written


def test_a_result_without_times_has_no_plot(tmp_path):
    plots.draw(result([Row({'layer': 'a'}, values={'edges': 5})]), tmp_path / 'found.png')
    assert not (tmp_path / 'found.png').exists()


def test_other_formats_are_refused():
    with pytest.raises(argparse.ArgumentTypeError, match=r"ends in \.png or \.svg \(got 'found\.jpeg'\)"):
        plots.path('found.jpeg')


def test_without_matplotlib_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    with pytest.raises(argparse.ArgumentTypeError, match='pip install matplotlib'):
        plots.path('found.png')
