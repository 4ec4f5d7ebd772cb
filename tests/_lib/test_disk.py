"""What is kept on disk: by which key, and machine code of several processes met in one."""

import importlib.util
import os
import pickle
import time

import pytest

from pygfuse._lib import announcement
from pygfuse._lib import disk as cache
from pygfuse._lib.machine_code import MachineCode
from tests.support.scripts import run_text

SYMBOLS = """
import sys
from pygfuse._lib import disk as cache
from pygfuse.cpu.compilation.kernel import Kernel
import torch

def add(part, x, by):
    x[part] += by

def multiply(part, x, by):
    x[part] *= by

kernel = Kernel({'add': add, 'multiply': multiply}[sys.argv[1]], sys.argv[1])
kernel(1, torch.zeros(1), 2.0)
(path,) = cache.cache_directory().iterdir()
print(cache.load(path).names[1])
"""


def entry_symbol(name, folder):
    done = run_text(folder, SYMBOLS, name, environment={'PYGFUSE_CACHE_DIR': str(folder / name)})
    done.check_returncode()
    return done.stdout.strip()


def test_kernels_of_different_processes_have_different_symbols(tmp_path):
    # the same number in both would let the linker run one kernel for the other
    symbols = [entry_symbol(name, tmp_path) for name in ('add', 'multiply')]
    assert all(symbol.startswith('pygfuse_') for symbol in symbols)
    assert symbols[0] != symbols[1]


def test_kernels_are_named_by_sources_that_exist(monkeypatch):
    asked = []
    monkeypatch.setattr(cache, 'source_digest', lambda module: asked.append(module) or b'')
    cache.entry_path('pygfuse.cpu.walks.forward', 'name')
    assert len(asked) == 2
    assert all(importlib.util.find_spec(module) for module in asked)


def test_where_kernels_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    assert cache.cache_directory() == tmp_path
    monkeypatch.delenv('PYGFUSE_CACHE_DIR')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert cache.cache_directory() == tmp_path / 'pygfuse'
    assert cache.entry_path('a', 'b') == cache.entry_path('a', 'b') != cache.entry_path('a', 'c')


@pytest.fixture
def said(monkeypatch, caplog):
    """The messages from now on, as if nothing had been said before."""
    monkeypatch.setattr(announcement, '_said', set())
    return caplog


def stored(path, size=100):
    """Stores code of about a size and returns it."""
    code = MachineCode(('name',), (os.urandom(size),))
    cache.store(path, code)
    return code


def test_what_was_stored_is_loaded(tmp_path):
    code = stored(tmp_path / 'entry.kernel')
    assert cache.load(tmp_path / 'entry.kernel') == code
    assert cache.load(tmp_path / 'missing.kernel') is None


def test_damaged_files_are_not_loaded(tmp_path, said):
    path = tmp_path / 'entry.kernel'
    stored(path)
    content = path.read_bytes()
    changed = content[:150] + bytes([content[150] ^ 1]) + content[151:]
    for damaged in (b'', b'garbage', content[:50], changed, content + b'!'):
        path.write_bytes(damaged)
        assert cache.load(path) is None
    assert said.messages == [f'pygfuse compiles damaged kernels anew: {path}']


class Attack:
    def __reduce__(self):
        return os.abort, ()


def test_a_pickle_is_not_run(tmp_path, said):
    path = tmp_path / 'entry.kernel'
    path.write_bytes(pickle.dumps(Attack()))
    assert cache.load(path) is None


def test_kernels_unused_for_longest_leave_first(tmp_path, monkeypatch):
    for i, name in enumerate(('new', 'old', 'oldest')):
        stored(tmp_path / f'{name}.kernel', 1000)
        then = time.time() - i * 100_000
        os.utime(tmp_path / f'{name}.kernel', (then, then))
    (tmp_path / 'measured.json').write_text('{}')
    cache.load(tmp_path / 'oldest.kernel')
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', '4000')
    stored(tmp_path / 'newest.kernel', 1000)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ['measured', 'new', 'newest', 'oldest']
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', '0')
    stored(tmp_path / 'last.kernel', 1000)
    assert [path.stem for path in tmp_path.iterdir()] == ['measured']


def test_a_folder_is_listed_once_in_a_while(tmp_path, monkeypatch):
    listed = []
    monkeypatch.setattr(cache, 'prune', lambda folder, limit: listed.append(len(list(folder.iterdir()))))
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', str(64 * 10_000))
    for i in range(30):
        stored(tmp_path / f'{i}.kernel', 1000)
    # at first, and when all that was written since is more than a sixty-fourth of the limit
    assert listed == [1, 11, 21]


def test_more_kernels_leave_than_must(tmp_path, monkeypatch):
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', '20000')
    for i in range(30):
        stored(tmp_path / f'{i}.kernel', 1000)
        found = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert found <= 20_000
    cache.prune(tmp_path, found - 1)
    left = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert (found - 1) * 7 / 8 - 1200 < left <= (found - 1) * 7 / 8


def test_the_limit_of_bytes(monkeypatch, said):
    monkeypatch.delenv('PYGFUSE_CACHE_BYTES', raising=False)
    assert cache.byte_limit() == 2**30
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', '123')
    assert cache.byte_limit() == 123
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', '1G')
    assert cache.byte_limit() == cache.byte_limit() == 2**30
    assert said.messages == ["PYGFUSE_CACHE_BYTES is '1G'; expected a number of bytes, 1 GiB is taken"]


def test_what_killed_processes_left_is_removed(tmp_path):
    for name in ('killed.partial', 'killed.lock', 'writing.partial', 'compiling.lock'):
        (tmp_path / name).touch()
        if name.startswith('killed'):
            os.utime(tmp_path / name, (0, 0))
    stored(tmp_path / 'entry.kernel')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['compiling.lock', 'entry.kernel', 'writing.partial']
