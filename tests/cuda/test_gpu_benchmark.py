"""The GPU benchmark, on a CPU and a small graph: that every section and the report run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_all_sections_run(tmp_path):
    script = Path(__file__).parents[2] / 'benchmarks' / 'gpu.py'
    chosen = ['--graphs', 'cora', '--layers', 'GATv2Conv', '--scale', '0.05', '--repeats', '2', '--limit', '600']
    command = [sys.executable, str(script), '--device', 'cpu', *chosen, '--out', str(tmp_path / 'found')]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / 'found.json').read_text())
    # turbo-gnn, where it is installed, runs on GPUs only
    assert not [key for key, result in found.items() if 'error' in result and not key.endswith(' turbo')]
    text = (tmp_path / 'found.md').read_text()
    assert '| cora | GATv2Conv 8 x 32 |' in text
    assert '- fused: ' in text
