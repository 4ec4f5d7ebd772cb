"""What is kept on disk: by which key, and machine code of several processes met in one."""

import os
import subprocess
import sys

from pygfuse._lib import disk as cache

SYMBOLS = """
import sys
from pygfuse._lib import disk as cache
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


def test_where_kernels_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    assert cache.cache_directory() == tmp_path
    monkeypatch.delenv('PYGFUSE_CACHE_DIR')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert cache.cache_directory() == tmp_path / 'pygfuse'
    assert cache.entry_path('a', 'b') == cache.entry_path('a', 'b') != cache.entry_path('a', 'c')


def test_what_cannot_be_loaded_is_none(tmp_path):
    assert cache.load(tmp_path / 'missing') is None
    for content in (b'', b'garbage', b'\x80\x05'):
        (tmp_path / 'entry').write_bytes(content)
        assert cache.load(tmp_path / 'entry') is None
