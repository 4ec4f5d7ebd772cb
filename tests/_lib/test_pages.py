from __future__ import annotations

import mmap

import pytest
import torch

from pygfuse._lib import pages
from pygfuse._lib.pages import on_huge_pages

HUGE = 2**21
linux = pytest.mark.skipif(not hasattr(mmap, 'MADV_HUGEPAGE'), reason='the system has no such advice')


def test_it_is_the_same_tensor():
    for shape in ((3, 4), (2_000, 1_500), (0, 4)):
        tensor = torch.empty(shape)
        assert on_huge_pages(tensor) is tensor
        assert bool((tensor.fill_(2.0) == 2.0).all())


@pytest.fixture
def advised(monkeypatch):
    calls = []
    monkeypatch.setattr(pages, '_madvise', lambda: lambda *advice: calls.append(advice))
    return calls


@linux
@pytest.mark.parametrize('size', [2 * HUGE, 2 * HUGE + 1, 5 * HUGE - 1])
def test_the_whole_huge_pages_of_a_large_tensor_are_asked_for(advised, size):
    tensor = on_huge_pages(torch.empty(size, dtype=torch.uint8))
    ((address, length, advice),) = advised
    assert advice == mmap.MADV_HUGEPAGE
    assert address % HUGE == length % HUGE == 0
    # what is left at both ends is less than a page
    assert 0 <= address - tensor.data_ptr() < HUGE
    assert 0 <= tensor.data_ptr() + size - (address + length) < HUGE


@linux
def test_the_size_is_in_bytes(advised):
    on_huge_pages(torch.empty(HUGE // 8, 4))
    assert [length for _, length, _ in advised] in ([2 * HUGE], [HUGE])


@linux
def test_nothing_is_asked_for_small_tensors(advised):
    on_huge_pages(torch.empty(2 * HUGE - 1, dtype=torch.uint8))
    on_huge_pages(torch.empty(0, 4))
    assert advised == []
