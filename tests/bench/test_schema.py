"""Results as JSON."""

import dataclasses
import json

import pytest

from pygfuse.bench.machine import machine
from pygfuse.bench.schema import Result, Row


@pytest.fixture
def result() -> Result:
    rows = [
        Row.of({'layer': name}, {'PyG': [0.004], 'pygfuse': [0.002]}, [('PyG', 'pygfuse')], {'edges': 5})
        for name in 'ab'
    ]
    return Result('layers', 'python -m pygfuse.bench', '2026-01-01', machine('no such package'), {}, rows)


def test_results_are_read_as_written(result, tmp_path):
    result.write(tmp_path / 'some.json')
    assert Result.read(tmp_path / 'some.json') == result
    assert [path.name for path in tmp_path.iterdir()] == ['some.json']


def test_rows_are_found_by_their_parameters(result):
    row = result.row('b')
    assert (row.get('layer'), row.get('PyG / pygfuse'), row.get('edges'), row.get('DGL')) == ('b', 2.0, 5, None)
    with pytest.raises(KeyError, match="no row 'c'"):
        result.row('c')


@pytest.mark.parametrize(
    ('change', 'expected'),
    [
        ({'machine': {'processor': 'x'}}, "Expected 'machine' to name"),
        ({'date': 'today'}, "Expected 'date' to be YYYY-MM-DD"),
        ({'rows': [{'parameters': {'layer': 'GATConv'}}] * 2}, "Expected 'rows' to have different parameters"),
    ],
)
def test_results_that_say_too_little_are_refused(result, tmp_path, change, expected):
    path = tmp_path / 'some.json'
    result.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=expected):
        Result.read(path)


def test_the_machine_names_what_ran(result):
    assert {'processor', 'cores', 'threads', 'torch', 'torch_geometric', 'pygfuse'} <= {*result.machine}
    assert 'no such package' not in result.machine
    assert dataclasses.replace(result, transcribed='page.md').transcribed == 'page.md'
