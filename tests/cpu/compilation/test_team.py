from __future__ import annotations

import ctypes.util
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from pygfuse.cpu.compilation import team

HAS_MAPS = pytest.mark.skipif(not os.path.exists('/proc/self/maps'), reason='needs /proc')

# sklearn's OpenMP library is loaded too, and first
FILE_OF_TEAM = """
import ctypes.util
import sklearn.utils
from pygfuse.cpu.compilation import team
address = ctypes.cast(team._openmp_parallel(), ctypes.c_void_p).value
for line in open('/proc/self/maps'):
    first, end = (int(number, 16) for number in line.split()[0].split('-'))
    if first <= address < end:
        print(line.split(maxsplit=5)[5].rstrip())
"""


@pytest.fixture
def forgotten():
    """What is known of torch's library is forgotten before and after."""
    team._openmp_parallel.cache_clear()
    yield
    team._openmp_parallel.cache_clear()


def file_of_team(packages: pathlib.Path) -> pathlib.Path:
    """The library whose team runs the kernels of a process that imports everything from `packages`."""
    roots = [str(packages), str(pathlib.Path(team.__file__).parents[3])]
    environment = os.environ | {'PYTHONPATH': os.pathsep.join(roots)}
    command = [sys.executable, '-W', 'ignore', '-c', FILE_OF_TEAM]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return pathlib.Path(found.stdout.strip())


@HAS_MAPS
@pytest.mark.skipif(not torch.backends.openmp.is_available(), reason='torch has no OpenMP team here')
@pytest.mark.parametrize('name', [pytest.param('packages', marks=pytest.mark.slow), 'my packages'])
def test_the_team_is_torchs_wherever_torch_was_imported_from(tmp_path, name):
    pytest.importorskip('sklearn')
    installed = pathlib.Path(torch.__file__).resolve().parents[1]
    (tmp_path / name).symlink_to(installed)
    assert installed / 'torch' in file_of_team(tmp_path / name).parents


def test_a_library_that_was_deleted_is_passed_over(monkeypatch, forgotten):
    monkeypatch.setattr(torch._C, '__file__', '/nowhere/_C.so')
    assert team._openmp_parallel() is None


def test_where_torch_has_no_team_threads_are_pythons(monkeypatch, forgotten):
    monkeypatch.setattr(torch._C, '__file__', ctypes.util.find_library('m') or pytest.skip('no other library'))
    assert team._openmp_parallel() is None
