from __future__ import annotations

import os
import subprocess
import sys

import pytest

import pygfuse


def run(code: str, *options: str, **environment: str) -> str:
    """Standard output and error of a fresh interpreter."""
    command = [sys.executable, *options, '-c', code]
    done = subprocess.run(
        command, check=True, text=True, capture_output=True, timeout=120, env={**os.environ, **environment}
    )
    return done.stdout + done.stderr


def test_import_compiles_nothing(tmp_path):
    output = run('import pygfuse, pygfuse.conv, pygfuse.memory', PYGFUSE_CACHE_DIR=str(tmp_path))
    assert output == ''
    assert list(tmp_path.iterdir()) == []


def test_modules_that_need_no_import_of_their_own():
    run('import pygfuse; pygfuse.conv.GATConv; pygfuse.transforms.ToHAG; pygfuse.transforms.ToExecutionPaths')


def test_import_alone_raises_no_warning():
    # what PyG and torch warn of is theirs
    code = 'import warnings, torch_geometric.nn, numba; warnings.simplefilter("error"); import pygfuse'
    assert run(code) == ''


def test_import_costs_little_beyond_pyg(tmp_path):
    code = """
import time, torch, torch_geometric.nn
start = time.process_time()
import pygfuse
print(time.process_time() - start)
"""
    # after the first, modules are read as bytecode, as they are where a package is installed
    bytecode = {'PYTHONPYCACHEPREFIX': str(tmp_path), 'PYTHONDONTWRITEBYTECODE': ''}
    # 0.2 s of one core where it was measured, half of it PyTorch's registration of operators
    assert min(float(run(code, **bytecode)) for _ in range(3)) < 0.4


@pytest.mark.parametrize('name', ['fuse', 'unfuse', 'report', '__version__'])
def test_public_names(name):
    assert hasattr(pygfuse, name)
