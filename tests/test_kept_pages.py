"""Freed memory that the process keeps: counted by page faults, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pygfuse._lib import announcement, kept_pages
from pygfuse.memory import keep_pages, release_pages

BEGIN = """
import json, resource
import torch
from pygfuse.memory import keep_pages, release_pages

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

"""
# pages of 64 MB, huge or not
LEAST = 64 // 2
glibc = pytest.mark.skipif(kept_pages.why_not() is not None, reason='the allocator is not that of glibc')


def found(script: str) -> list:
    """What a new process prints, as JSON."""
    done = subprocess.run([sys.executable, '-c', BEGIN + script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@glibc
@pytest.mark.slow
def test_memory_that_was_freed_is_taken_again():
    # what was allocated meanwhile may lie behind the first block, so that the next one, aligned, does not fit there
    by_itself, kept, first, again, were_free, released = found(
        'first = faults(), keep_pages(), faults()\nagain = min(faults() for _ in range(6))\n'
        'print(json.dumps([*first, again, release_pages(), faults()]))'
    )
    assert kept is True
    assert were_free is True
    assert min(by_itself, first, released) >= LEAST
    assert again < LEAST // 2


@glibc
@pytest.mark.slow
@pytest.mark.parametrize('limit', [2**25, 0])
def test_more_than_the_limit_is_given_back(limit):
    # the first block after the second call may still be there, and what lies behind a block, by chance, keeps it there
    script = f'print(json.dumps([keep_pages(), faults(), keep_pages({limit}), faults(), faults()]))'
    assert any(found(script)[-1] >= LEAST for _ in range(6))


@pytest.mark.parametrize('limit', [-1, 2**31])
def test_limits_that_glibc_cannot_be_told(limit):
    with pytest.raises(ValueError, match=rf"Expected 'limit_bytes' to be None or between 0 and .* \(got {limit}\)"):
        keep_pages(limit)


def test_elsewhere_nothing_changes(monkeypatch, caplog):
    monkeypatch.setattr(kept_pages, 'why_not', lambda: 'the C library is not glibc')
    monkeypatch.setattr(announcement, '_said', set())
    monkeypatch.setattr(kept_pages, 'keep', pytest.fail)
    monkeypatch.setattr(kept_pages, 'release', pytest.fail)
    assert keep_pages() is False
    assert release_pages() is False
    assert [record.getMessage() for record in caplog.records] == [
        'Freed memory is not kept: the C library is not glibc'
    ]


@pytest.fixture
def look_again():
    kept_pages.why_not.cache_clear()
    yield
    kept_pages.why_not.cache_clear()


@glibc
def test_another_allocator_is_found(look_again, monkeypatch):
    numbers = iter(range(2))
    monkeypatch.setattr(kept_pages, '_address', lambda function: next(numbers))
    assert kept_pages.why_not() == "another allocator takes the place of glibc's"


def test_another_system(look_again, monkeypatch):
    monkeypatch.setattr(kept_pages.sys, 'platform', 'darwin')
    assert kept_pages.why_not() == 'the system is darwin'
