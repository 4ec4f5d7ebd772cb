"""Group sizes by measurement."""

import pytest
import torch

from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import PARTS_LIMIT, Mapping, cut
from pygfuse.mapping.records import Shape
from pygfuse.tune import group_sizes as search


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    yield
    search.TABLE.reload()


def csr_of(degrees):
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    return Csr(indptr, torch.arange(int(indptr[-1])) % 7, None)


@pytest.mark.parametrize('degrees', [[], [0], [1], [0] * 9, [4] * 1000, [3000]])
def test_candidates_reach_from_the_limit_of_parts_to_one_part(degrees):
    csr = csr_of(degrees)
    counts = [cut(csr, Mapping('edge', size)).count for size in search.candidates(Shape.of(csr))]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 1
    assert counts[0] <= PARTS_LIMIT
    assert counts[0] > PARTS_LIMIT / 2 or counts[0] == max(1, csr.num_rows + csr.num_edges)


def test_the_fastest_is_chosen_and_remembered_for_its_width(monkeypatch):
    asked = []

    def times(csr, row_bytes, sizes, rounds):
        asked.append(row_bytes)
        return {size: [1.0 if size == (64 if row_bytes == 16 else 128) else 2.0] * rounds for size in sizes}

    monkeypatch.setattr(search, 'walk_times', times)
    for _ in range(2):
        assert search.group_size(csr_of([4] * 1000), 16) == 64
        assert search.group_size(csr_of([4] * 1001), 32) == 128
        search.TABLE.reload()
    assert asked == [16, 32]


def test_what_another_version_wrote_is_measured_anew(monkeypatch):
    monkeypatch.setattr(search, 'searched', lambda csr, row_bytes: 32)
    csr = csr_of([4] * 10)
    search.TABLE.remember({f'{search.key_of(Shape.of(csr))}, 16 bytes': 'small'})
    assert search.group_size(csr, 16) == 32


def test_each_size_is_timed_as_often_as_asked():
    times = search.walk_times(csr_of([2, 0, 5]), 16, [1, 8], 3)
    assert {size: len(found) for size, found in times.items()} == {1: 3, 8: 3}
    assert all(seconds > 0 for found in times.values() for seconds in found)


def test_no_edges():
    assert search.group_size(csr_of([0, 0]), 16) in (1, 2)
    assert search.group_size(csr_of([]), 16) == 1
