from __future__ import annotations

import builtins
import io
import os

import pytest

from pygfuse.cpu import team


@pytest.fixture
def loaded(monkeypatch):
    """Lets the process look as if other libraries were loaded, and nothing be remembered of it."""
    given = builtins.open

    def let(maps: str) -> None:
        team._openmp_parallel.cache_clear()
        monkeypatch.setattr(
            builtins, 'open', lambda path, *rest: io.StringIO(maps) if path == '/proc/self/maps' else given(path, *rest)
        )

    yield let
    team._openmp_parallel.cache_clear()


def maps_of(path: str) -> str:
    return f'7f00-7f01 r-xp 00000000 fe:00 123                        {path}\n'


def library() -> str:
    with open('/proc/self/maps') as maps:
        return next(line.split(maxsplit=5)[5].rstrip('\n') for line in maps if 'gomp' in line and '.so' in line)


@pytest.mark.skipif(not os.path.exists('/proc/self/maps'), reason='needs /proc')
def test_torchs_team_is_found_under_a_path_with_spaces(loaded, tmp_path):
    folder = tmp_path / 'my project'
    folder.mkdir()
    path = folder / 'libgomp.so.1'
    path.symlink_to(library())
    loaded(maps_of(str(path)))
    assert team._openmp_parallel() is not None


@pytest.mark.skipif(not os.path.exists('/proc/self/maps'), reason='needs /proc')
def test_a_library_that_was_deleted_is_passed_over(loaded):
    loaded(maps_of('/nowhere/libgomp.so.1 (deleted)'))
    assert team._openmp_parallel() is None
