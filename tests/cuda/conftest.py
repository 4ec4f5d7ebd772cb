from __future__ import annotations

import importlib
import os

import pytest

from pygfuse._lib import backends

# these need NUMBA_ENABLE_CUDASIM=1 before numba is imported; `test_simulator.py` runs them in a process of their own
collect_ignore = [] if os.environ.get('NUMBA_ENABLE_CUDASIM') == '1' else ['simulated']


@pytest.fixture
def in_place_of_the_cpu(monkeypatch):
    """Has walks, sorting and HAGs of tensors of the CPU done by the CUDA backend."""
    given = backends._module
    modules = {name: importlib.import_module(f'pygfuse.cuda.{name}') for name in ('backend', 'sort', 'hag')}
    monkeypatch.setitem(backends._BACKENDS, 'cpu', modules['backend'])
    monkeypatch.setattr(backends, '_module', lambda kind, name: modules.get(name) or given(kind, name))
    monkeypatch.setattr('pygfuse.ops.walked_products.forms_products_by_chunks', lambda kind: False)
    # a GPU sorts few edges as well
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)


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


@pytest.fixture
def driver(monkeypatch, machine_code):
    """Stands for the CUDA driver: kernels are interpreted, and what nobody wrote is known."""
    if os.environ.get('CI', '').lower() not in ('1', 'true'):
        pytest.importorskip('numba_cuda')
    from tests.support.device_memory import unwritten
    from tests.support.driver import StandIn

    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(machine_code))
    with StandIn().installed() as driver, unwritten():
        yield driver
