from __future__ import annotations

import os
import subprocess
import sys

import pytest

import pygfuse


def run(code: str, *arguments: str, **environment: str) -> str:
    """Standard output and error of a fresh interpreter."""
    # PyG compiles with TorchScript while it is imported
    command = [sys.executable, '-W', 'ignore:`torch.jit.script` is', '-c', code, *arguments]
    done = subprocess.run(
        command, check=True, text=True, capture_output=True, timeout=120, env={**os.environ, **environment}
    )
    return done.stdout + done.stderr


# what PyG and torch warn of is theirs
IMPORT = """
import sys, warnings, torch_geometric.nn, numba
warnings.simplefilter('error')
import pygfuse
# these need no import of their own
pygfuse.conv.GATConv, pygfuse.transforms.ToHAG, pygfuse.transforms.ToExecutionPaths
import pygfuse.memory
print([name for name in sys.modules if name.startswith(('pygfuse.bench', 'pygfuse.mapping.group_sizes.learned'))])
"""


def test_import_compiles_nothing_warns_of_nothing_and_loads_what_is_needed(tmp_path):
    assert run(IMPORT, PYGFUSE_CACHE_DIR=str(tmp_path)) == '[]\n'
    assert list(tmp_path.iterdir()) == []


# after the first, modules are read as bytecode, as they are where a package is installed
TIMES = """
import os, sys, time, torch, torch_geometric.nn
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[1], False
for _ in range(3):
    if os.fork() == 0:
        start = time.process_time()
        import pygfuse
        print(time.process_time() - start, flush=True)
        os._exit(0)
    os.wait()
"""


def test_import_costs_little_beyond_pyg(tmp_path):
    # 0.2 to 0.4 s of one core where it was measured, half of it PyTorch's registration of operators
    assert min(map(float, run(TIMES, str(tmp_path)).split())) < 0.6


@pytest.mark.parametrize('name', ['fuse', 'unfuse', 'report', '__version__'])
def test_public_names(name):
    assert hasattr(pygfuse, name)
