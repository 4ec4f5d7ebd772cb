"""The sort by way of buckets against a stable sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.cpu.edges import bucket_sort, sort
from pygfuse.memory import peak_bytes
from tests.cpu.edges.test_sort import check_sort, chunks, edges  # noqa: F401 (a fixture)

INT32 = torch.int32


@pytest.fixture
def buckets(chunks, monkeypatch):  # noqa: F811
    """Buckets of a few edges, in one chunk or in three on three threads, however few edges there are."""
    monkeypatch.setattr(bucket_sort, 'LEAST_OF_ONE', 1)
    monkeypatch.setattr(bucket_sort, 'LEAST_OF_SEVERAL', 1)
    monkeypatch.setattr(bucket_sort, 'BUCKET_EDGES', 5)
    return chunks


def check_transpose(targets, sources, rows, columns):
    pointer = torch.cat((torch.zeros(1, dtype=torch.int64), targets.bincount(minlength=rows).cumsum(0)))
    order = targets.argsort(stable=True)
    index = sources[order]
    column_pointer, rows_of, position = sort.transpose(pointer.to(INT32), index.to(INT32), columns)
    expected = index.argsort(stable=True)
    assert {column_pointer.dtype, rows_of.dtype, position.dtype} == {INT32}
    assert position.tolist() == expected.tolist()
    assert rows_of.tolist() == targets[order][expected].tolist()
    assert column_pointer.tolist() == [0, *index.bincount(minlength=columns).cumsum(0).tolist()]


# a graph's edges are drawn with one number of chunks, so the fixture may stay between them
@settings(max_examples=80, deadline=None)
@given(case=edges(), with_loops=st.booleans(), fewer=st.integers(0, 3))
def _test_any_edges(case, with_loops, fewer):
    targets, sources, rows, columns = case
    loops = max(0, min(rows, columns) - fewer) if with_loops else None
    check_sort(targets, sources, rows, columns, loops, INT32)
    check_transpose(targets, sources, rows, columns)


def test_any_edges(buckets):
    _test_any_edges()


@pytest.mark.parametrize('loops', [None, 0, 40, 700])
def test_many_buckets(loops, buckets):
    torch.manual_seed(0)
    rows = 700
    targets, sources = torch.randint(0, rows, (5000,)), torch.randint(0, rows, (5000,))
    assert bucket_sort.are_for_buckets(5000, rows, buckets, INT32)
    # fewer rows, of a whole number of buckets or not, and rows beyond the last edge
    for end in (rows, 64, 33, 1):
        check_sort(targets % end, sources, rows, rows, loops, INT32)
        check_transpose(targets % end, sources, rows, rows)
    # a hub
    targets[100:4900] = 3
    check_sort(targets, sources, rows, rows, loops, INT32)
    check_transpose(sources, targets, rows, rows)


@pytest.mark.parametrize('wrong', [-1, 9, 2**31, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize('which', [0, 1])
def test_a_node_out_of_range_is_noticed_before_it_is_used(wrong, which, buckets):
    count = 3 * bucket_sort.BLOCK
    # not by target, so that they have to be sorted
    pair = (torch.arange(2 * count) % 2).view(2, count)
    for position in (0, bucket_sort.BLOCK - 1, bucket_sort.BLOCK, count - 1):
        bad = pair.clone()
        bad[which, position] = wrong
        for loops in (None, 9):
            assert bucket_sort.sorted_by_buckets(bad[0], bad[1], 9, 9, -1 if loops is None else 9, INT32, 3) is None
            with pytest.raises(IndexError):
                sort.sort_by_target(bad[0], bad[1], 9, 9, loops, INT32)


def test_which_edges_are_sorted_so(buckets, monkeypatch):
    monkeypatch.undo()
    fewest = bucket_sort.LEAST_OF_SEVERAL
    assert not bucket_sort.are_for_buckets(fewest - 1, 99, 2, INT32)
    assert bucket_sort.are_for_buckets(fewest, 99, 2, INT32)
    assert not bucket_sort.are_for_buckets(fewest, 99, 1, INT32)
    assert not bucket_sort.are_for_buckets(fewest, 99, 2, torch.int64)
    assert not bucket_sort.are_for_buckets(bucket_sort.MOST_EDGES + 1, 99, 2, INT32)


def test_what_it_takes_in_passing():
    """Three numbers an edge beside the result, and not where that is much."""
    edges, rows = bucket_sort.LEAST_OF_ONE, 1000
    targets, sources = torch.randint(0, rows, (2, edges)).unbind()
    result = 4 * (2 * edges + rows + 1)
    peak = peak_bytes(lambda: sort.sort_by_target(targets, sources, rows, rows, None, INT32))
    small = 8 * (bucket_sort.MOST_BUCKETS + 1) * (torch.get_num_threads() + 2)
    assert result + 4 * bucket_sort.ITEM * edges <= peak <= result + 4 * bucket_sort.ITEM * edges + small
