"""Machine code that several processes kept on disk, met in one process."""

import os
import subprocess
import sys

SYMBOLS = """
import sys
from pygfuse.cpu import cache
from pygfuse.cpu.kernel import Kernel
import torch

def add(part, x, by):
    x[part] += by

def multiply(part, x, by):
    x[part] *= by

kernel = Kernel({'add': add, 'multiply': multiply}[sys.argv[1]], sys.argv[1])
kernel(1, torch.zeros(1), 2.0)
(path,) = cache.cache_directory().iterdir()
print(cache.load(path)[1])
"""


def entry_symbol(name, folder):
    environment = {**os.environ, 'PYGFUSE_CACHE_DIR': str(folder)}
    done = subprocess.run(
        [sys.executable, '-c', SYMBOLS, name], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout.strip()


def test_kernels_of_different_processes_have_different_symbols(tmp_path):
    # the same number in both would let the linker run one kernel for the other
    symbols = [entry_symbol(name, tmp_path / name) for name in ('add', 'multiply')]
    assert all('entry' in symbol for symbol in symbols)
    assert symbols[0] != symbols[1]
