"""How the pieces of rows are combined: in order, and never many by one team."""

import itertools

import pytest
import torch

from pygfuse.cuda import combination
from pygfuse.cuda.combination import levels_of, num_slots
from pygfuse.cuda.row_tiling import SMALLEST_PART, parts_of
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Mapping, force_mapping

HUB = 100_000


def csr_of(*degrees):
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    return Csr(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int64), None)


def test_a_hub_is_combined_by_all_teams():
    parts = parts_of(csr_of(HUB, 3), 256)
    assert len(parts.slots) > HUB // SMALLEST_PART // 2  # its pieces: one team would take as many steps
    levels = levels_of(parts)
    assert levels.longest_chain < 0.05 * HUB / SMALLEST_PART
    assert levels.longest_chain <= 3 * combination.FAN_IN


@pytest.mark.parametrize('fan_in', [2, 3, 32])
@pytest.mark.parametrize('degrees', [(40,), (0, 40, 0, 13, 1, 1, 90, 0), (5, 5), (7, 64, 8)])
def test_pieces_keep_their_order(degrees, fan_in, monkeypatch):
    monkeypatch.setattr(combination, 'FAN_IN', fan_in)
    with force_mapping(Mapping('edge', part_work=3)):
        parts = parts_of(csr_of(*degrees), 256)
    levels = levels_of(parts)
    assert num_slots(parts) == levels.num_slots
    left = {slot: [slot] for slot in parts.slots.tolist()}
    for level in (*levels.inner, levels.last):
        runs = [level.slots[a:b].tolist() for a, b in itertools.pairwise(level.indptr.tolist())]
        assert max(map(len, runs)) <= level.longest <= fan_in
        combined = [[piece for slot in run for piece in left[slot]] for run in runs]
        into = level.into.tolist()
        if level is not levels.last:
            assert not left.keys() & set(into)
            left |= dict(zip(into, combined, strict=True))
    assert into == parts.split_rows.tolist()
    assert combined == [parts.slots[a:b].tolist() for a, b in itertools.pairwise(parts.split_indptr.tolist())]


def test_rows_of_few_pieces_take_one_level():
    with force_mapping(Mapping('vertex', part_work=100)):
        parts = parts_of(csr_of(300, 300), 256)
    levels = levels_of(parts)
    assert not levels.inner
    assert levels.num_slots == parts.num_slots
    assert levels_of(parts) is levels


def test_without_heavy_rows_there_is_nothing():
    parts = parts_of(csr_of(3, 3, 3), 256)
    assert levels_of(parts) is None
    assert num_slots(parts) == 0
