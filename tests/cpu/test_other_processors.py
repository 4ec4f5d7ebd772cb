"""The same numbers on processors with narrower vectors than this one may have, and kernels for other systems."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AVX2 = '+sse2,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+f16c'


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != 'x86_64', reason='names of x86-64 processors')
@pytest.mark.parametrize(
    ('tests', 'chosen', 'name', 'features'),
    [
        ('ops/test_aggregate.py', 'equals and (1-5 or 3-17)', 'haswell', AVX2),
        ('ops/test_aggregate.py', 'equals and (1-5 or 3-17)', 'x86-64', '+sse2'),
        ('ops/points/test_knn.py', 'dimensions or neighbours or chunk or fused or boxes_give', 'haswell', AVX2),
        ('ops/points/test_radius.py', 'tree or nearest_are or lower_indices or very_many or fused', 'x86-64', '+sse2'),
    ],
)
def test_kernels_compiled_for_another_processor(tests, chosen, name, features, tmp_path):
    command = [sys.executable, '-m', 'pytest', '-q', str(Path(__file__).parents[1] / tests), '-k', chosen]
    environment = {
        **os.environ,
        'NUMBA_CPU_NAME': name,
        'NUMBA_CPU_FEATURES': features,
        'PYGFUSE_CACHE_DIR': str(tmp_path),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]


# Windows' own looks at the stack of functions that need many pages
KNOWN = {'free', 'malloc', '_chkstk'}


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != 'x86_64', reason='names of x86-64 processors')
def test_kernels_are_translated_for_systems_that_run_no_tests(tmp_path):
    environment = {
        **os.environ,
        'NUMBA_CPU_NAME': 'x86-64',
        'NUMBA_CPU_FEATURES': '+sse2',
        'PYGFUSE_CACHE_DIR': str(tmp_path),
    }
    command = [sys.executable, '-m', 'tests.cpu.retargeted']
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found.pop('modules') > 30
    assert set(found) == {'Linux on ARM', 'macOS on ARM', 'Windows'}
    for called in found.values():
        assert set(called) <= KNOWN
