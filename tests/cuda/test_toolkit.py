"""What CUDA's toolkit and numba-cuda are asked for."""

import importlib.metadata
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pygfuse
from pygfuse.cuda import toolkit

CUDA = Path(pygfuse.__file__).parent / 'cuda'


@pytest.mark.parametrize(
    ('release', 'newest', 'newer'),
    [((12, 4), (8, 4), (8, 5)), ((12, 6), (8, 5), (8, 6)), ((12, 9), (8, 8), (9, 0)), ((13, 0), (9, 0), (9, 1))],
)
def test_an_assembler_reads_what_is_not_newer_than_itself(release, newest, newer):
    toolkit.check_assembler(release, newest)
    toolkit.check_assembler(release, (7, 8))
    with pytest.raises(RuntimeError, match=r'writes PTX {}\.{}\.'.format(*newer)):
        toolkit.check_assembler(release, newer)


def test_the_message_says_what_to_install():
    with pytest.raises(RuntimeError, match=r"pip install 'nvidia-nvvm==13\.0\.\*' 'nvidia-nvjitlink==13\.0\.\*'"):
        toolkit.check_assembler((13, 0), (9, 4))
    wanted = r"pip install 'nvidia-cuda-nvcc-cu12==12\.8\.\*' 'nvidia-nvjitlink-cu12==12\.8\.\*'"
    with pytest.raises(RuntimeError, match=wanted):
        toolkit.check_assembler((12, 8), (8, 8))


def test_the_compiler_that_is_installed_writes_what_its_release_reads():
    pytest.importorskip('numba_cuda')
    release = re.match(r'(\d+)\.(\d+)', importlib.metadata.version('nvidia-nvvm')).groups()
    assert toolkit.written_by_compiler() == toolkit.readable_by(tuple(map(int, release)))


def test_the_installed_versions_are_compared(monkeypatch):
    bindings = pytest.importorskip('cuda.bindings')
    linker = SimpleNamespace(version=lambda: (12, 4))
    monkeypatch.setitem(sys.modules, 'cuda.bindings.nvjitlink', linker)
    monkeypatch.setattr(bindings, 'nvjitlink', linker, raising=False)
    with pytest.raises(RuntimeError, match=r'nvidia-nvjitlink-cu12 12\.4 reads PTX 8\.4'):
        toolkit.check.__wrapped__()
    linker.version = lambda: (99, 0)
    toolkit.check.__wrapped__()


def test_one_module_knows_numba_cuda():
    found = {path.name for path in CUDA.rglob('*.py') if re.search(r'^\s*(from|import) numba', path.read_text(), re.M)}
    assert found == {'numba_cuda.py'}
