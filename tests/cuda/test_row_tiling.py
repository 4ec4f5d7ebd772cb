"""How much a team of lanes takes at a time."""

import torch

from pygfuse import force_mapping, group_sizes
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
