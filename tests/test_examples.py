from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

EXAMPLES = Path(__file__).parent.parent / 'examples'
PNG = b'\x89PNG\r\n'


def run_example(name: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout


def table_row(output: str, name: str) -> tuple[float, float, float]:
    """The figures of PyG and pygfuse and their ratio in one row of the quickstart's table."""
    row = re.search(rf'^{name} .*$', output, flags=re.MULTILINE).group()
    pyg, fused, ratio = re.findall(r'[\d.]+|inf', row)
    return float(pyg), float(fused), float(ratio)


def test_quickstart_prints_a_table_and_draws_a_picture(tmp_path):
    picture = tmp_path / 'quickstart.png'
    output = run_example('quickstart.py', '--epochs', 3, '--neighbors', 8, '--output', picture)
    for name in ('test accuracy', 'ms per epoch', 'saved for backward', 'peak of a step'):
        assert min(table_row(output, name)) > 0
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_quickstart_learns_the_same_with_less(tmp_path):
    output = run_example('quickstart.py', '--output', tmp_path / 'quickstart.png')
    pyg, fused, _ = table_row(output, 'test accuracy')
    assert pyg > 90
    assert abs(pyg - fused) < 0.5
    for name in ('ms per epoch', 'saved for backward', 'peak of a step'):
        assert table_row(output, name)[2] > 1


@pytest.fixture(scope='module')
def planetoid_root(tmp_path_factory) -> Path:
    """A stand-in for Cora's raw files: 700 nodes, of which 140 train, 500 validate and 60 test."""
    root = tmp_path_factory.mktemp('planetoid')
    raw = root / 'Cora' / 'raw'
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    classes = generator.integers(7, size=700)
    labels = np.eye(7)[classes]
    # A node's class stands in its features, with noise.
    features = scipy.sparse.csr_matrix(labels @ generator.random((7, 20)) + 0.1 * generator.random((700, 20)))
    neighbors = defaultdict(list)
    # neighbours are of one class: the features of 20 words with dropout say little
    for node in range(700):
        neighbors[node] += generator.choice(np.flatnonzero(classes == classes[node]), 4).tolist()
    parts = {
        'x': features[:140],
        'y': labels[:140],
        'allx': features[:640],
        'ally': labels[:640],
        'tx': features[640:],
        'ty': labels[640:],
        'graph': neighbors,
    }
    for name, part in parts.items():
        (raw / f'ind.cora.{name}').write_bytes(pickle.dumps(part))
    (raw / 'ind.cora.test.index').write_text('\n'.join(map(str, range(640, 700))))
    return root


@pytest.mark.parametrize('backend', ['pyg', 'pygfuse'])
def test_gat_planetoid_prints_a_line_per_data_set(planetoid_root, backend):
    output = run_example(
        'gat_planetoid.py',
        *('--root', planetoid_root, '--dataset', 'Cora', '--backend', backend, '--seeds', 2, '--epochs', 60),
    )
    found = re.search(rf'^Cora +{backend} +test accuracy ([\d.]+) \+- [\d.]+ % \(2 seeds\)', output, re.MULTILINE)
    assert found, output
    assert float(found[1]) > 2 * 100 / 7  # better than chance
