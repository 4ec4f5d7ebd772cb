"""Of several threads and processes, one compiles; whatever happens to it, the others go on."""

import concurrent.futures
import contextlib
import errno
import fcntl
import multiprocessing
import os
import signal
import threading
import time

import pytest

from pygfuse._lib import announcement, compile_once
from pygfuse._lib.private_files import read, write

pytestmark = pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')


class Compiler:
    """Stands in for a kernel's compilation; notes each in the file ``log``."""

    def __init__(self, folder, name='entry', seconds=0.0):
        self.path, self.log, self.seconds = folder / f'{name}.kernel', folder / 'log', seconds

    def compile_new(self):
        with self.log.open('a') as log:
            log.write('compiled\n')
        time.sleep(self.seconds)
        write(self.path, b'code')
        return b'code'

    def __call__(self):
        return compile_once.compile_once(self.path, lambda: read(self.path), self.compile_new)

    def count(self):
        return len(self.log.read_text().splitlines())


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(announcement, '_said', set())


@contextlib.contextmanager
def forked(task, number=1):
    """Children that run a task; those that still run in the end are killed."""
    children = [multiprocessing.get_context('fork').Process(target=task) for _ in range(number)]
    for child in children:
        child.start()
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.join()


def wait_for(condition):
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_of_eight_processes_compiles(tmp_path):
    compiler = Compiler(tmp_path, seconds=0.3)

    def task():
        assert compiler() == b'code'

    with forked(task, 8) as children:
        for child in children:
            child.join(20)
    assert [child.exitcode for child in children] == [0] * 8
    assert compiler.count() == 1
    assert names(tmp_path) == ['entry.kernel', 'log']


def test_one_of_eight_threads_compiles(tmp_path):
    compiler = Compiler(tmp_path, seconds=0.1)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert {task.result() for task in [pool.submit(compiler) for _ in range(8)]} == {b'code'}
    assert compiler.count() == 1


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_dies_while_it_compiles(tmp_path, number):
    def task():
        # a shell has its background processes ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Compiler(tmp_path, seconds=60)()

    with forked(task) as (child,):
        wait_for(lambda: (tmp_path / 'log').exists())
        assert 'entry.lock' in names(tmp_path)
        os.kill(child.pid, number)
        child.join(20)
        start = time.monotonic()
        assert Compiler(tmp_path)() == b'code'
        assert time.monotonic() - start < 10
    assert names(tmp_path) == ['entry.kernel', 'log']


def test_those_who_wait_go_on_when_the_compiling_process_dies(tmp_path):
    with forked(Compiler(tmp_path, seconds=60)) as (first,):
        wait_for(lambda: (tmp_path / 'log').exists())
        with forked(Compiler(tmp_path), 3) as others:
            time.sleep(0.3)
            assert all(other.is_alive() for other in others)
            first.kill()
            for other in others:
                other.join(20)
            assert [other.exitcode for other in others] == [0, 0, 0]
    assert Compiler(tmp_path).count() == 2
    assert names(tmp_path) == ['entry.kernel', 'log']


def test_an_interrupted_compilation_leaves_nothing_locked(tmp_path):
    class Interrupted(Compiler):
        def compile_new(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted(tmp_path)()
    assert names(tmp_path) == []
    compiler = Compiler(tmp_path)
    with forked(compiler) as (child,):
        child.join(20)
        assert child.exitcode == 0
    assert compiler() == b'code'
    assert compiler.count() == 1


@contextlib.contextmanager
def locked(path):
    with open(path, 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_nobody_waits_for_ever(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compile_once, 'WAIT_LIMIT_S', 0.3)
    caplog.set_level('INFO')
    with locked(tmp_path / 'entry.lock'):
        assert Compiler(tmp_path)() == b'code'
        # it is the other's lock still
        assert names(tmp_path) == ['entry.kernel', 'entry.lock', 'log']
    assert caplog.messages == ['another process compiles kernels for this processor; waiting for them']


def test_the_file_of_another_process_ends_the_wait(tmp_path):
    compiler = Compiler(tmp_path)
    with locked(tmp_path / 'entry.lock'):
        timer = threading.Timer(0.2, write, (compiler.path, b'code of another'))
        timer.start()
        assert compiler() == b'code of another'
    assert not compiler.log.exists()


def test_a_lock_of_a_dead_process_is_taken(tmp_path):
    (tmp_path / 'entry.lock').touch()
    assert Compiler(tmp_path)() == b'code'
    assert names(tmp_path) == ['entry.kernel', 'log']


def test_a_lock_whose_file_is_gone_is_none(tmp_path, monkeypatch):
    # the process that held it removes the file and releases the lock between this one's opening and locking it
    flock, locked_files = fcntl.flock, []

    def late(handle, operation):
        if not locked_files:
            os.unlink(tmp_path / 'entry.lock')
        locked_files.append(os.fstat(handle).st_nlink)
        flock(handle, operation)

    monkeypatch.setattr(fcntl, 'flock', late)
    assert Compiler(tmp_path)() == b'code'
    assert locked_files == [0, 1]


def test_another_process_finished_just_before_the_lock_was_free(tmp_path, monkeypatch):
    compiler = Compiler(tmp_path)
    monkeypatch.setattr(fcntl, 'flock', lambda *arguments: write(compiler.path, b'code of another'))
    assert compiler() == b'code of another'
    assert not compiler.log.exists()


@pytest.mark.parametrize('code', [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_file_systems_without_locks(tmp_path, monkeypatch, code):
    def flock(handle, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, 'flock', flock)
    assert Compiler(tmp_path)() == b'code'
    assert names(tmp_path) == ['entry.kernel', 'log']


def test_a_folder_that_is_refused_is_left_alone(tmp_path, monkeypatch):
    compiler = Compiler(tmp_path)
    tmp_path.chmod(0o777)
    opened = []
    monkeypatch.setattr(fcntl, 'flock', lambda *arguments: opened.append(arguments))
    assert compiler() == b'code'
    assert not opened
    assert names(tmp_path) == ['log']


def test_a_fork_while_another_thread_compiles(tmp_path):
    first, second = Compiler(tmp_path, seconds=0.5), Compiler(tmp_path, 'other')
    thread = threading.Thread(target=first)
    thread.start()
    wait_for(lambda: first.log.exists())
    with forked(second) as (child,):
        # the child was made when the thread had compiled, and no lock of the parent is closed in it
        assert first.path.exists()
        child.join(20)
        assert child.exitcode == 0
    thread.join()
    assert names(tmp_path) == ['entry.kernel', 'log', 'other.kernel']


def test_a_fork_in_the_middle_of_a_compilation(tmp_path):
    class Forking(Compiler):
        def compile_new(self):
            self.child = os.fork()
            return super().compile_new()

    compiler = Forking(tmp_path)
    assert compiler() == b'code'
    if not compiler.child:
        os._exit(0)
    _, status = os.waitpid(compiler.child, 0)
    assert status == 0
    assert Compiler(tmp_path)() == b'code'
    assert names(tmp_path) == ['entry.kernel', 'log']
