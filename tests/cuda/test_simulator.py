"""Runs `simulated/` where numba's CUDA simulator stands for a GPU: it must be chosen before numba is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pygfuse.program.expansion import EXPANSIONS
from pygfuse.program.vocabulary import WORDS
from tests.support import emulation


@pytest.mark.slow
def test_walks_in_the_simulator():
    command = [sys.executable, '-m', 'pytest', '-q', '-x', str(Path(__file__).parent / 'simulated')]
    environment = {**os.environ, 'NUMBA_ENABLE_CUDASIM': '1'}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]
    assert ' passed' in done.stdout


def test_the_emulation_has_every_word_of_kernels():
    assert {*WORDS} - {*EXPANSIONS} - {'sum_channels'} <= {*emulation.WORDS}
