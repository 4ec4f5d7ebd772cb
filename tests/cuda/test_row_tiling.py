"""How much a team of lanes takes at a time."""

import pytest
import torch

from pygfuse import force_mapping, group_sizes
from pygfuse.cuda import row_tiling
from pygfuse.cuda.arguments import KINDS
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.row_tiling import SMALLEST_PART, parts_of
from pygfuse.graph.csr import Csr
from pygfuse.mapping.group_sizes.regression import PUBLISHED
from pygfuse.mapping.mapping import Mapping
from pygfuse.mapping.records import Shape


def csr_of(rows, degree):
    return Csr(torch.arange(rows + 1) * degree, torch.zeros(rows * degree, dtype=torch.int64), None)


def count_for(work, size):
    return -(-work // size)


def test_group_sizes_and_forced_mappings_hold_here_too():
    csr = csr_of(2000, 9)
    assert parts_of(csr, 64).count == count_for(20_000, SMALLEST_PART)
    with group_sizes(lambda csr, row_bytes: row_bytes):
        assert parts_of(csr, 64).count == count_for(20_000, 64)
        assert parts_of(csr, 640).count == count_for(20_000, 640)
        with force_mapping(Mapping('edge', 100)):
            assert parts_of(csr, 64).count == count_for(20_000, 100)
    with group_sizes('regression'):
        size = PUBLISHED.size(Shape.of(csr))
        assert parts_of(csr, 64).count == count_for(20_000, max(size, SMALLEST_PART))


def test_groups_are_no_more_than_rows():
    csr = csr_of(40_000, 30)
    assert parts_of(csr, 64).count == count_for(40_000 * 31, 40_000 * 31 // 16384)
    for size, count in ((1, 40_000), (31, 40_000), (62, 20_000)):
        with group_sizes(lambda csr, row_bytes, size=size: size):
            assert parts_of(csr, 64).count == count


@pytest.mark.parametrize(
    ('dtype', 'channels', 'held'),
    [(torch.float32, 602, 86), (torch.float64, 602, 86), (torch.float64, 250, 125), (torch.bfloat16, 512, 256),
     (torch.float32, 256, 256), (torch.float32, 601, 601), (torch.float32, 2 * 601, 2 * 601)],
)  # fmt: skip
def test_tiles_that_may_not_overlap_divide_a_head_or_there_is_one(dtype, channels, held):
    device, limit = torch.device('cpu'), row_tiling.BACKWARD_VALUES
    tiling = row_tiling.tiling(dtype, device, 2, channels, limit, True, overlapping=False)
    assert tiling.layout.channels == held
    assert tiling.tiles[1::2].tolist() == [*range(0, 2 * channels, held)]


def test_of_float64_a_lane_holds_half_as_many_values():
    for dtype, heads, batch in ((torch.float32, 4, 2), (torch.float64, 2, 2)):
        layout = row_tiling.tiling(dtype, torch.device('cpu'), 4, 64, row_tiling.BACKWARD_VALUES).layout
        assert (layout.heads, layout.batch) == (heads, batch)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize('channels', [513, 520, 602, 768, 1000, 1030, 1433, 2049, 3703])
def test_wide_rows_are_cut_evenly(channels, dtype):
    tiling = row_tiling.tiling(dtype, torch.device('cpu'), 1, channels, row_tiling.FORWARD_VALUES, True)
    starts, held = tiling.tiles[1::2].tolist(), tiling.layout.channels
    assert held * tiling.count <= 1.05 * channels
    assert tiling.layout.values <= row_tiling.FORWARD_VALUES
    assert tiling.layout.vector == Layout(KINDS[dtype], 1, channels).vector  # loads are as wide as they were
    assert all(start % tiling.layout.vector == 0 for start in starts)
    covered = torch.zeros(channels, dtype=torch.bool)
    for start in starts:
        covered[start : start + held] = True
    assert bool(covered.all())
    assert starts[-1] + held == channels


@pytest.mark.parametrize(
    ('dtype', 'channels', 'team'),
    [(torch.float32, 512, 32), (torch.float32, 516, 128), (torch.float64, 256, 32), (torch.float64, 602, 128),
     (torch.bfloat16, 520, 128), (torch.float32, 2048, 128)],
)  # fmt: skip
def test_a_head_that_is_held_whole_is_dealt_to_a_block_where_a_warp_is_too_narrow(dtype, channels, team):
    layout = row_tiling.tiling(dtype, torch.device('cpu'), 4, channels, row_tiling.BACKWARD_VALUES, degree=32).layout
    assert (layout.team, layout.heads, layout.channels) == (team, 1, channels)
    assert layout.values <= row_tiling.WHOLE_VALUES * 4 // max(4, dtype.itemsize)


@pytest.mark.parametrize(('channels', 'team'), [(250, 128), (64, 32)])
def test_rows_that_are_summed_leave_room_for_fewer_values(channels, team):
    given = torch.float64, torch.device('cpu'), 1, channels, row_tiling.BACKWARD_VALUES
    assert row_tiling.tiling(*given, summed=2).layout.team == team
    assert row_tiling.tiling(*given).layout.team == 32
    # 34 vectors of eight are too few for a block
    assert row_tiling.tiling(torch.bfloat16, *given[1:3], 272, given[4], summed=2).layout.team == 32


def test_a_block_holds_one_wide_head():
    for heads, channels in ((2, 516), (1, 64)):
        with pytest.raises(ValueError, match="'over_block'"):
            Layout('float32', heads, channels, over_block=True)
