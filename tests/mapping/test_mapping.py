"""Cuts of a graph's edges into parts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.cpu.edges import cuts
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import PART_WORK, Mapping, copies_for_adding, cut, force_mapping, forced, make_cut


def csr_of(degrees) -> Csr:
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor(degrees, dtype=torch.int64).cumsum(0)])
    return Csr(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int64), None)


def pieces(parts, indptr):
    """What walks make of a cut: (row, first edge, end, slot or None) of every piece, in order."""
    found = []
    bounds = parts.bounds.tolist()
    for p in range(parts.count):
        first_row, first_edge, last_row, last_edge = bounds[2 * p : 2 * p + 4]
        for v in range(first_row, last_row + (last_edge > indptr[last_row])):
            begin, end = max(indptr[v], first_edge), min(indptr[v + 1], last_edge)
            whole = (begin, end) == (indptr[v], indptr[v + 1])
            found.append((v, begin, end, None if whole else 2 * p + (begin == indptr[v])))
    return found


@given(
    degrees=st.lists(st.integers(0, 12) | st.just(60), min_size=1, max_size=12),
    count=st.integers(1, 9),
    cut_above=st.sampled_from([None, 0, 5]),
)
@settings(deadline=None, max_examples=300)
def test_every_edge_is_in_one_piece_and_pieces_of_a_row_are_found(degrees, count, cut_above):
    csr = csr_of(degrees)
    indptr = csr.indptr.tolist()
    parts = make_cut(csr, count, cut_above)
    found = pieces(parts, indptr)
    assert [begin for _, begin, end, _ in found if end > begin] == sorted(
        {begin for _, begin, end, _ in found if end > begin}
    )
    assert sum(end - begin for _, begin, end, _ in found) == csr.num_edges
    whole = [row for row, _, _, slot in found if slot is None]
    assert len(whole) == len(set(whole))
    split: dict[int, list[int]] = {}
    for row, _, _, slot in found:
        if slot is not None:
            split.setdefault(row, []).append(slot)
    assert sorted([*whole, *split]) == list(range(len(degrees)))
    assert parts.split_rows.tolist() == sorted(split)
    for i, row in enumerate(parts.split_rows.tolist()):
        first, end = parts.split_indptr[i : i + 2].tolist()
        assert parts.slots[first:end].tolist() == split[row]
    slots = [slot for of_row in split.values() for slot in of_row]
    assert len(slots) == len(set(slots))


def work(parts) -> torch.Tensor:
    rows, edges = parts.bounds.view(-1, 2).unbind(1)
    return rows.diff() + edges.diff()


def test_edge_balanced_parts_are_equal():
    parts = make_cut(csr_of([3, 90_000, 0, 17, 5_000]), 16, cut_above=0)
    assert int(work(parts).max()) <= 95_025 // 16 + 2


def test_a_hub_is_cut_in_both_mappings():
    csr = csr_of([*[20] * 500, 400_000, *[20] * 500])
    for name in ('vertex', 'edge'):
        parts = cut(csr, Mapping(name))
        assert parts.split_rows.tolist().count(500) == 1
        assert int(work(parts).max()) <= 2 * max(PART_WORK, 421_001 // parts.count)


def test_vertex_balanced_leaves_rows_whole():
    assert len(cut(csr_of([50] * 5000), Mapping('vertex')).split_rows) == 0
    assert cut(csr_of([50] * 5000), Mapping('vertex')).num_slots == 0


def test_a_cut_is_kept_and_does_not_depend_on_threads():
    csr = csr_of([50] * 5000)
    first = cut(csr, Mapping('edge'))
    assert cut(csr, Mapping('edge')) is first
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert torch.equal(cut(csr_of([50] * 5000), Mapping('edge')).bounds, first.bounds)
    finally:
        torch.set_num_threads(threads)


def test_each_mapping_has_a_cut_of_its_own():
    csr = csr_of([6000, 10])  # more than a part and less than what is cut anyway
    assert cut(csr, Mapping('edge')).num_split_rows == 1
    assert cut(csr, Mapping('vertex')).num_split_rows == 0
    assert cut(csr, Mapping('edge', part_work=100)).count > cut(csr, Mapping('edge')).count


def test_forcing_a_mapping():
    assert forced() is None
    with force_mapping('edge'):
        assert forced() == Mapping('edge')
        with force_mapping(Mapping('vertex', part_work=512, two_pass=True)):
            assert forced() == Mapping('vertex', 512, True)
        assert forced() == Mapping('edge')
    assert forced() is None


def test_wrong_mappings():
    with pytest.raises(ValueError, match=r"'balance'.*'diagonal'"), force_mapping('diagonal'):
        pass
    with pytest.raises(ValueError, match="'part_work'"):
        Mapping(part_work=0)


def test_smaller_parts_are_more():
    csr = csr_of([50] * 5000)
    assert cut(csr, Mapping(part_work=1024)).count > cut(csr, Mapping()).count


def test_wrong_counts():
    with pytest.raises(ValueError, match="'count'"):
        make_cut(csr_of([1, 2]), 0)


def test_no_rows_and_no_edges():
    assert make_cut(csr_of([]), 3).bounds.tolist() == [0, 0] * 4
    assert work(make_cut(csr_of([0, 0, 0]), 2)).tolist() == [1, 2]


@pytest.mark.parametrize('cut_above', [None, 0, 7])
@pytest.mark.parametrize('count', [2, 3, 5, 16, 40])
@pytest.mark.parametrize('seed', range(8))
def test_a_kernel_cuts_as_operators_do(seed, count, cut_above, monkeypatch):
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.randint(12, (20,), generator=generator) * (torch.rand(20, generator=generator) < 0.6)
    degrees[int(torch.randint(20, (), generator=generator))] = 150 * (seed % 2)
    csr = csr_of(degrees.tolist())
    by_kernel = make_cut(csr, count, cut_above)
    monkeypatch.setattr('pygfuse.mapping.mapping.cuts_of', lambda _: None)
    by_operators = make_cut(csr, count, cut_above)
    for name in ('bounds', 'split_rows', 'split_indptr', 'slots'):
        assert torch.equal(getattr(by_kernel, name), getattr(by_operators, name)), name
    by_kernel = cuts.cut(csr.indptr.to(torch.int32), count, csr.num_edges if cut_above is None else cut_above)
    assert {tensor.dtype for tensor in by_kernel} == {torch.int64}


@pytest.mark.parametrize(
    ('num_rows', 'degree', 'expected'),
    [
        (1000, 100, 50),  # no more than half of what the edges would hold
        (1000, 1000, 64),
        (2**18, 100, 16),  # more would take over 64 MB
        (1000, 20, 0),  # too few for many workers
        (2**21 + 1, 33, 0),  # a copy of more than 32 MB
    ],
)
def test_copies_for_adding_are_many_or_none_and_small_beside_the_edges(num_rows, degree, expected):
    row_bytes, indptr = 16, (torch.arange(num_rows + 1) * degree).int()
    edges = torch.empty(1, dtype=torch.int32).expand(num_rows * degree)
    found = copies_for_adding(Csr(indptr, edges, None), row_bytes)
    assert found == expected
    assert found * num_rows <= num_rows * degree // 2
