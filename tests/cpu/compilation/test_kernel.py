from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import signal
import subprocess
import threading
import warnings

import pytest
import torch
from llvmlite.binding import ffi

from pygfuse._lib import compile_once
from pygfuse._lib import disk as cache
from pygfuse._lib.machine_code import MachineCode
from pygfuse.cpu.compilation.kernel import Kernel
from tests.support.faults import of_anything, out_of_memory
from tests.support.scripts import run_text

SCRIPT = """
import torch
from llvmlite.binding import ffi
from pygfuse.conv import GATConv
torch.manual_seed(0)
conv = GATConv(3, 2, heads=2)
out = conv(torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]]))
out.sum().backward()
print(float(out.detach().double().sum()), float(conv.att_src.grad.double().sum()))
"""


@pytest.fixture
def run(tmp_path_factory):
    """Runs a layer in a new process that keeps kernels in a folder."""

    def run(folder) -> subprocess.CompletedProcess:
        environment = {'PYGFUSE_CACHE_DIR': str(folder)}
        done = run_text(tmp_path_factory.mktemp('script'), SCRIPT, environment=environment)
        done.check_returncode()
        return done

    return run


def add_one(part, x, by, out):
    for i in range(part * 10, min(len(x), (part + 1) * 10)):
        out[i] = x[i] + by


def test_a_second_process_compiles_nothing(tmp_path, run):
    first = run(tmp_path)
    assert 'pygfuse: compiling' in first.stderr
    entries = sorted(tmp_path.iterdir())
    second = run(tmp_path)
    assert second.stderr == ''
    assert second.stdout == first.stdout
    assert sorted(tmp_path.iterdir()) == entries
    assert all(entry.suffix == '.kernel' for entry in entries)


@pytest.mark.slow
def test_spoiled_entries_are_compiled_anew(tmp_path, run):
    first = run(tmp_path)
    entries = sorted(tmp_path.iterdir())
    for i, entry in enumerate(entries):
        entry.write_bytes(entry.read_bytes()[:100] if i % 2 else b'')
    third = run(tmp_path)
    assert third.stdout == first.stdout
    assert 'pygfuse: compiling' in third.stderr
    assert run(tmp_path).stderr == ''


def test_a_folder_that_cannot_be_written(tmp_path, run):
    blocked = tmp_path / 'file'
    blocked.write_text('no folder')
    done = run(blocked / 'cache')
    warning, announcement = done.stderr.splitlines()
    assert warning.endswith(f'kept for this process only: {blocked / "cache"} cannot be read (Not a directory)')
    assert announcement == 'pygfuse: compiling kernels for this processor'
    assert blocked.read_text() == 'no folder'


@pytest.mark.parametrize('threads', [1, 2, 7])
@pytest.mark.parametrize('parts', [1, 13, 100])
def test_every_part_runs_once(parts, threads):
    x = torch.arange(parts * 10.0)
    out = torch.zeros_like(x)
    kernel = Kernel(add_one, 'test of parts')
    for _ in range(20):
        out.zero_()
        kernel(parts, x, 1.5, out, threads=threads)
        assert torch.equal(out, x + 1.5)


def test_no_parts_is_no_work():
    out = torch.zeros(3)
    Kernel(add_one, 'test of parts')(0, out, 1.0, out)
    assert not out.any()


def test_kernels_specialise_by_type():
    kernel = Kernel(add_one, 'test of types')
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        x = torch.arange(25, dtype=dtype)
        out = torch.zeros_like(x)
        kernel(3, x, 2, out)
        assert torch.equal(out, x + 2)


def test_several_threads_compile_and_run_at_once():
    kernel = Kernel(add_one, 'test of threads')

    def task(i: int) -> bool:
        x = torch.full((1000,), float(i))
        out = torch.zeros_like(x)
        kernel(100, x, 1.0, out)
        return torch.equal(out, x + 1)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(task, range(200)))
    assert len(kernel._compiled) == 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    return tmp_path


@pytest.fixture
def compilations(monkeypatch, tmp_path_factory):
    """A function that says how many kernels were compiled, in this process and its children."""
    log = tmp_path_factory.mktemp('log') / 'log'
    log.touch()
    build = Kernel._build

    def logged(self, description):
        with log.open('a') as file:
            file.write('compiled\n')
        return build(self, description)

    monkeypatch.setattr(Kernel, '_build', logged)
    return lambda: len(log.read_text().splitlines())


def adds_one(name: str = 'test of the cache') -> bool:
    """Whether a new kernel, from disk or compiled, gives what it should."""
    x, out = torch.arange(10.0), torch.zeros(10)
    Kernel(add_one, name)(1, x, 1.0, out)
    return torch.equal(out, x + 1)


@pytest.mark.parametrize('place', [0.0, 0.02, 0.3, 0.5, 0.7, 0.999])
def test_a_kernel_with_a_damaged_byte_is_compiled_anew(folder, place, compilations):
    assert adds_one()
    (path,) = folder.iterdir()
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0x10
    path.write_bytes(content)
    assert adds_one()
    assert adds_one()
    assert compilations() == 2
    assert list(folder.iterdir()) == [path]


def test_machine_code_without_the_function_is_compiled_anew(folder, compilations):
    assert adds_one()
    (path,) = folder.iterdir()
    found = cache.load(path)
    cache.store(path, MachineCode((found.names[0], 'another'), found.pieces))
    assert adds_one()
    assert compilations() == 2


@pytest.mark.parametrize('delay', [0.01, 0.05, 0.1, 0.2])
def test_an_interrupt_at_any_time(folder, delay):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            assert adds_one()
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert adds_one()
    assert [path.suffix for path in folder.iterdir()] == ['.kernel']


def test_an_interrupt_while_a_lock_is_released(folder):
    """LLVM's would stay closed, and every other thread would wait."""
    interrupts = iter([KeyboardInterrupt])

    def interrupt():
        for error in interrupts:
            raise error

    ffi.register_lock_callback(lambda: None, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            adds_one()
    finally:
        ffi.unregister_lock_callback(*ffi.lib._lock._cblist[-1])
    found = []
    thread = threading.Thread(target=lambda: found.append(adds_one()), daemon=True)
    thread.start()
    thread.join(30)
    assert found == [True]


def test_an_interrupt_that_python_only_reports(folder, monkeypatch):
    """As where LLVM's lock is released by what disposes of a module: nothing is raised."""
    build = Kernel._build

    def interrupted(self, description):
        ffi.lib._lock._lock.acquire()
        return build(self, description)

    monkeypatch.setattr(Kernel, '_build', interrupted)
    assert adds_one()
    assert not ffi.lib._lock._lock._is_owned()


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_a_lock_that_was_left_closed_before(folder):
    for use in (adds_one, lambda: run_children([list]) is None):
        ffi.lib._lock._lock.acquire()
        assert use()
        assert not ffi.lib._lock._lock._is_owned()


def test_torch_compile_does_not_trace_the_compiler(folder):
    torch._dynamo.reset()
    x, out, kernel = torch.arange(10.0), torch.zeros(10), Kernel(add_one, 'test of a traced caller')

    def caller(x):
        torch._dynamo.graph_break()
        kernel(1, x, 1.0, out)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert torch.equal(torch.compile(caller, backend='eager')(x), x + 1)
    assert torch.equal(out, x + 1)


@pytest.mark.parametrize('share', [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_memory_that_runs_out_while_it_compiles(folder, compilations, share):
    with out_of_memory(None, of_anything) as whole:
        assert adds_one()
    cache.clear(folder)
    with out_of_memory(int(share * whole.calls), of_anything) as failure, contextlib.suppress(Exception):
        adds_one()
    assert failure.happened
    assert adds_one()
    assert not ffi.lib._lock._lock._is_owned()
    assert {path.suffix for path in folder.iterdir()} <= {'.kernel'}


def run_children(tasks) -> None:
    """Runs each task in a child of this process; all must succeed."""
    children = [multiprocessing.get_context('fork').Process(target=task) for task in tasks]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * len(children)
    finally:
        for child in children:
            child.kill()


def asserted(name: str = 'test of the cache') -> None:
    assert adds_one(name)


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_of_eight_processes_one_compiles(folder, compilations):
    run_children([asserted] * 8)
    assert compilations() == 1
    assert [path.suffix for path in folder.iterdir()] == ['.kernel']


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_children_number_their_functions_apart(folder):
    # their kernels meet in one process later
    run_children([lambda: asserted('one'), lambda: asserted('other')])
    first, second = (cache.load(path).names[1] for path in folder.iterdir())
    assert first != second


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_a_fork_while_a_thread_compiles(folder, monkeypatch):
    entered, build = threading.Event(), Kernel._build

    def noticed(self, description):
        entered.set()
        return build(self, description)

    monkeypatch.setattr(Kernel, '_build', noticed)
    thread = threading.Thread(target=asserted, args=('one',))
    thread.start()
    assert entered.wait(60)
    run_children([lambda: asserted('other')])
    thread.join()
    assert adds_one('one')


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_a_fork_does_not_wait_for_ever_for_a_thread_that_died_with_a_lock(monkeypatch):
    left = threading.RLock()
    thread = threading.Thread(target=left.acquire)
    thread.start()
    thread.join()
    monkeypatch.setattr(compile_once, '_compiling', left)
    monkeypatch.setattr(compile_once, 'WAIT_LIMIT_S', 0.05)
    run_children([list])
    assert not compile_once._taken
    assert not ffi.lib._lock._lock._is_owned()


def test_on_a_full_disk_kernels_are_kept_in_memory(folder, compilations, monkeypatch):
    monkeypatch.setattr('pygfuse._lib.private_files._replace', lambda *arguments: no_space())
    kernel, x, out = Kernel(add_one, 'test of a full disk'), torch.arange(10.0), torch.zeros(10)
    for _ in range(3):
        kernel(1, x, 1.0, out)
    assert torch.equal(out, x + 1)
    assert compilations() == 1
    assert list(folder.iterdir()) == []


def no_space() -> None:
    raise OSError(28, 'No space left on device')
