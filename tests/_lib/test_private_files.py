"""Files that only this user may write."""

import os
import resource
import stat
import time

import pytest

from pygfuse._lib import announcement, private_files
from pygfuse._lib.private_files import read, why_not_kept, why_refused, write

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason='only root gives files away')


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(announcement, '_said', set())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / 'folder' / 'file'
    assert write(path, b'content')
    return path


def test_what_was_written_is_read(file):
    assert read(file) == b'content'
    assert [path.name for path in file.parent.iterdir()] == ['file']


@pytest.mark.parametrize('umask', [0o000, 0o002, 0o022, 0o077])
def test_folders_and_files_are_private_under_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        path = tmp_path / 'parent' / 'folder' / 'file'
        assert write(path, b'content')
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == b'content'


@pytest.mark.parametrize('mode', [0o770, 0o707, 0o722, 0o1777, 0o2775])
def test_a_folder_that_others_may_write_to_is_refused(file, mode, caplog):
    file.parent.chmod(mode)
    assert read(file) is None
    assert not write(file, b'other')
    assert not write(file.with_name('new'), b'new')
    file.parent.chmod(0o755)
    assert read(file) == b'content'
    assert not file.with_name('new').exists()
    assert len(caplog.records) == 1
    assert f'kept for this process only: others may write to {file.parent}' in caplog.text


@pytest.mark.parametrize('mode', [0o660, 0o606, 0o622])
def test_a_file_that_others_may_write_to_is_refused(file, mode, caplog):
    file.chmod(mode)
    assert read(file) is None
    assert read(file) is None
    assert len(caplog.records) == 1
    assert f'others may write to {file}' in caplog.text
    # this user's folder: their own content replaces it
    assert write(file, b'own')
    assert read(file) == b'own'


def test_a_folder_of_another_user_is_refused(file, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, 'geteuid', lambda: owner + 1)
    assert (
        why_refused(file.parent) == f'{file.parent} belongs to user {owner}, and this process runs as user {owner + 1}'
    )
    assert read(file) is None
    assert not write(file, b'other')


@ROOT_ONLY
def test_a_file_of_another_user_is_refused(file):
    os.chown(file, 12345, -1)
    assert read(file) is None


def test_a_link_to_a_folder_of_ones_own_is_followed(file, tmp_path):
    (tmp_path / 'link').symlink_to(file.parent)
    assert read(tmp_path / 'link' / 'file') == b'content'


@ROOT_ONLY
def test_a_link_that_another_user_made_is_refused(file, tmp_path):
    (tmp_path / 'link').symlink_to(file.parent)
    os.chown(tmp_path / 'link', 12345, -1, follow_symlinks=False)
    assert read(tmp_path / 'link' / 'file') is None


def test_what_is_no_file_is_not_read(file):
    file.with_name('link').symlink_to(file)
    os.mkfifo(file.with_name('pipe'), 0o600)
    file.with_name('folder').mkdir(0o700)
    assert [read(file.with_name(name)) for name in ('link', 'pipe', 'folder', 'missing')] == [None] * 4


@pytest.mark.parametrize('name', ['file', 'file/folder', 'loop/folder'])
def test_a_folder_that_cannot_be_made(file, name):
    file.with_name('loop').symlink_to('loop')
    folder = file.parent / name
    assert why_not_kept(folder)
    assert read(folder / 'file') is None
    assert not write(folder / 'file', b'content')


@pytest.mark.skipif(os.geteuid() == 0, reason='root writes everywhere')
def test_a_folder_that_cannot_be_written_to_is_read(file):
    file.parent.chmod(0o500)
    assert why_not_kept(file.parent) == f'{file.parent} cannot be written to'
    assert read(file) == b'content'


def test_a_write_that_fails_leaves_what_was_there(file, caplog):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert [write(file, bytes(5000)) for _ in range(2)] == [False, False]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read(file) == b'content'
    assert [path.name for path in file.parent.iterdir()] == ['file']
    assert len(caplog.records) == 1
    assert f'this process only: {file.parent} cannot be written to (File too large)' in caplog.text


def test_an_interrupted_write_leaves_nothing(file, monkeypatch):
    def interrupted(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(private_files.os, 'replace', interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(file, b'other')
    assert read(file) == b'content'
    assert [path.name for path in file.parent.iterdir()] == ['file']


@pytest.mark.parametrize(('age_h', 'touched'), [(1, False), (25, True)])
def test_use_is_noted_once_a_day(file, age_h, touched):
    then = time.time() - age_h * 3600
    os.utime(file, (then, then))
    assert read(file) == b'content'
    assert (file.stat().st_mtime > then + 60) == touched
