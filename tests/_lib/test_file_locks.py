"""A system that has other locks than Linux's, and says of no file whose it is: Windows, as far as Linux can play it."""

import os
import subprocess
import sys
import textwrap

import pytest

from pygfuse._lib.file_locks import try_lock

# what Windows' Python lacks is taken away once those are imported that need it here
WINDOWS = """
import logging, os, stat, sys, types
import numba, torch, torch_geometric.nn
locked = []
msvcrt = types.ModuleType('msvcrt')
msvcrt.LK_NBLCK, msvcrt.locking = 2, lambda handle, mode, count: locked.append((handle, mode, count))
sys.modules |= {'fcntl': None, 'msvcrt': msvcrt}
for name in ('geteuid', 'register_at_fork', 'O_NOFOLLOW', 'O_NONBLOCK'):
    delattr(os, name)
os.supports_fd = os.supports_fd - {os.utime}
logging.getLogger('pygfuse').setLevel(logging.WARNING)
"""
TASK = """
import copy
import pygfuse
conv = torch_geometric.nn.GATConv(8, 4, heads=2)
fused = pygfuse.fuse(copy.deepcopy(conv))
x, edge_index = torch.randn(30, 8), torch.randint(30, (2, 200))
torch.testing.assert_close(fused(x, edge_index), conv(x, edge_index))
fused(x, edge_index).sum().backward()
print(fused.note.reason, len(locked) > 0)
"""


def test_another_handle_of_a_locked_file(tmp_path):
    first, second = (os.open(tmp_path / 'lock', os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first)
    assert not try_lock(second)
    os.close(first)
    assert try_lock(second)
    os.close(second)


@pytest.mark.slow
def test_layers_run_where_nothing_is_of_linux(tmp_path):
    folder = tmp_path / 'kernels'
    folder.mkdir()
    # as Windows says of every folder
    folder.chmod(0o777)
    # PyG compiles with TorchScript while it is imported
    ran = [sys.executable, '-W', 'ignore:`torch.jit.script` is', '-c', textwrap.dedent(WINDOWS + TASK)]
    for compiles in (True, False):
        environment = {**os.environ, 'PYGFUSE_CACHE_DIR': str(folder)}
        done = subprocess.run(ran, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.split() == ['None', str(compiles)]
        assert not done.stderr.strip()
