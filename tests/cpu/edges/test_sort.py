"""The counting sort against a stable sort."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.cpu.edges import sort


@st.composite
def edges(draw):
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    count = draw(st.integers(0, 60))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, rows, (count,), generator=generator)
    sources = torch.randint(0, columns, (count,), generator=generator)
    if draw(st.booleans()):
        targets = targets.sort().values
    if draw(st.booleans()):
        targets, sources = targets[targets != sources], sources[targets != sources]
    return targets, sources, rows, columns


def reference(targets, sources, rows, columns, loops):
    """Pointer, columns and ids by NumPy's stable sort."""
    targets, sources, ids = targets.numpy(), sources.numpy(), np.arange(len(targets))
    if loops is not None:
        kept = targets != sources
        nodes = np.arange(loops)
        ids = np.concatenate((ids[kept], len(targets) + nodes))
        targets = np.concatenate((targets[kept], nodes))
        sources = np.concatenate((sources[kept], nodes))
    order = np.argsort(targets, kind='stable')
    pointer = np.concatenate(([0], np.cumsum(np.bincount(targets, minlength=rows))))
    return pointer, sources[order], ids[order]


@pytest.fixture(params=[1, 3], ids=['one thread', 'three chunks'])
def chunks(request, monkeypatch):
    """One chunk, or three on three threads however few the edges are."""
    if request.param > 1:
        monkeypatch.setattr(sort, 'CHUNK_MINIMUM', 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def check_sort(targets, sources, rows, columns, loops, dtype):
    indptr, index, edge_id = sort.sort_by_target(targets, sources, rows, columns, loops, dtype)
    pointer, expected, ids = reference(targets, sources, rows, columns, loops)
    assert {indptr.dtype, index.dtype} == {dtype}
    assert indptr.tolist() == pointer.tolist()
    assert index.tolist() == expected.tolist()
    if edge_id is None:
        assert ids.tolist() == list(range(len(ids)))
    else:
        assert edge_id.dtype == dtype
        assert edge_id.tolist() == ids.tolist()


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
@settings(max_examples=60, deadline=None)
@given(case=edges(), with_loops=st.booleans(), fewer=st.integers(0, 3))
def test_sort_equals_a_stable_sort(dtype, case, with_loops, fewer):
    targets, sources, rows, columns = case
    loops = max(0, min(rows, columns) - fewer) if with_loops else None
    check_sort(targets, sources, rows, columns, loops, dtype)


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
def test_transpose_equals_a_stable_sort(dtype, chunks):
    torch.manual_seed(0)
    for rows, columns, count in ((7, 5, 60), (1, 9, 40), (30, 1, 200), (4, 4, 0)):
        targets = torch.randint(0, rows, (count,)).sort().values
        sources = torch.randint(0, columns, (count,))
        indptr = torch.cat((torch.zeros(1, dtype=torch.int64), targets.bincount(minlength=rows).cumsum(0)))
        pointer, rows_of, position = sort.transpose(indptr.to(dtype), sources.to(dtype), columns)
        order = sources.sort(stable=True).indices
        assert position.dtype == dtype
        assert position.tolist() == order.tolist()
        assert rows_of.tolist() == targets[order].tolist()
        assert pointer.diff().tolist() == sources.bincount(minlength=columns).tolist()
        assert pointer[0] == 0


@pytest.mark.parametrize('loops', [None, 40])
@pytest.mark.parametrize('rows', [40, 700])
def test_the_result_does_not_depend_on_the_number_of_chunks(loops, rows, chunks):
    torch.manual_seed(0)
    targets, sources = torch.randint(0, rows, (5000,)), torch.randint(0, rows, (5000,))
    assert sort._chunk_count(5000, rows) == chunks
    check_sort(targets, sources, rows, rows, loops, torch.int32)
    # a hub, and rows that no edge reaches
    targets[100:4900] = 3
    check_sort(targets, sources, rows, rows, loops, torch.int32)
    # by target already
    targets = targets.sort().values
    check_sort(targets, sources, rows, rows, loops, torch.int32)
    sources = torch.where(sources == targets, (sources + 1) % rows, sources)
    check_sort(targets, sources, rows, rows, loops, torch.int32)


def test_sorted_edges_need_no_ids():
    targets = torch.tensor([0, 0, 2, 5])
    assert sort.sort_by_target(targets, targets, 6, 6, None, torch.int32)[2] is None
    # out of order across a block's border only
    targets = torch.arange(2 * sort.BLOCK)
    targets[sort.BLOCK] = 0
    assert sort.sort_by_target(targets, targets, 9999, 9999, None, torch.int32)[2] is not None


@pytest.mark.parametrize('loops', [None, 99])
def test_edges_that_come_by_target_are_not_sorted(loops, monkeypatch, chunks):
    monkeypatch.setattr(sort, '_sort', None)
    targets = torch.arange(3 * sort.BLOCK) // 31
    check_sort(targets, torch.full_like(targets, 100), 120, 120, loops, torch.int32)


@pytest.mark.parametrize('wrong', [-1, 9, 2**31, 2**62, -(2**63), 2**63 - 1])
@pytest.mark.parametrize('which', [0, 1])
@pytest.mark.parametrize('loops', [None, 9])
def test_a_node_out_of_range_is_noticed_before_it_is_used(wrong, which, loops, chunks):
    pair = torch.zeros(2, 3 * sort.BLOCK, dtype=torch.int64)
    for position in (0, sort.BLOCK - 1, sort.BLOCK, 3 * sort.BLOCK - 1):
        bad = pair.clone()
        bad[which, position] = wrong
        with pytest.raises(IndexError):
            sort.sort_by_target(bad[0], bad[1], 9, 9, loops, torch.int32)


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
def test_inverted_undoes_a_permutation(dtype, chunks):
    for count in (0, 1, 1000):
        position = torch.randperm(count).to(dtype)
        found = sort.inverted(position)
        assert found.dtype == dtype
        assert found[position.long()].tolist() == list(range(count))


def test_no_rows_and_no_columns():
    nothing = torch.zeros(0, dtype=torch.int64)
    indptr, index, _ = sort.sort_by_target(nothing, nothing, 0, 0, None, torch.int32)
    assert indptr.tolist() == [0]
    assert index.tolist() == []
    assert [part.tolist() for part in sort.transpose(indptr, index, 0)] == [[0], [], []]
    with pytest.raises(IndexError):
        sort.sort_by_target(nothing.new_zeros(1), nothing.new_zeros(1), 0, 0, None, torch.int32)
