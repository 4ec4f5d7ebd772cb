from __future__ import annotations

import os

import pytest

# these need NUMBA_ENABLE_CUDASIM=1 before numba is imported; `test_simulator.py` runs them in a process of their own
collect_ignore = [] if os.environ.get('NUMBA_ENABLE_CUDASIM') == '1' else ['simulated']


@pytest.fixture(name='in_place_of_the_cpu')
def _in_place_of_the_cpu():
    """Has walks, sorting and HAGs of tensors of the CPU done by the CUDA backend."""
    from tests.support.in_place import in_place_of_the_cpu

    with in_place_of_the_cpu():
        yield


@pytest.fixture
def interpreted(monkeypatch):
    """Has kernels compiled as for a GPU and interpreted on tensors of the CPU; what nobody wrote is known."""
    from pygfuse.cuda import kernels
    from tests.support.device_memory import unwritten
    from tests.support.interpreter import InterpretedKernel, forget_kernels

    monkeypatch.setattr(kernels, 'Kernel', InterpretedKernel)
    forget_kernels()
    with unwritten():
        yield
    forget_kernels()


@pytest.fixture(scope='session')
def machine_code(tmp_path_factory):
    """A folder of machine code that is text."""
    return tmp_path_factory.mktemp('machine-code')


def _needs_compiler():
    if os.environ.get('CI', '').lower() not in ('1', 'true'):
        pytest.importorskip('numba_cuda')


@pytest.fixture
def driver(monkeypatch, machine_code):
    """Stands for the CUDA driver: kernels are interpreted, and what nobody wrote is known."""
    _needs_compiler()
    from tests.support.device_memory import unwritten
    from tests.support.driver import StandIn

    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(machine_code))
    with StandIn().installed() as driver, unwritten():
        yield driver


@pytest.fixture
def processor(monkeypatch, machine_code):
    """Stands for the CUDA driver: kernels run on this machine's processor, and what nobody wrote is no number."""
    _needs_compiler()
    from tests.support.coroutine import IS_UNDERSTOOD
    from tests.support.device_memory import unwritten
    from tests.support.processor import Processor

    if not IS_UNDERSTOOD:
        pytest.skip('needs a later LLVM')

    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(machine_code))
    with Processor().installed() as driver, unwritten():
        yield driver
