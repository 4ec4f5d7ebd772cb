"""In how many blocks edges are walked."""

from __future__ import annotations

import pytest
import torch

from pygfuse.graph.csr import Csr
from pygfuse.mapping.blocks import BLOCK_BYTES, LEAST_RUN, MANY, WIDER, WIDER_OF_MANY, count_of_blocks

ROWS = 1_000


def edges_by_row(degree: int) -> Csr:
    return Csr(torch.arange(ROWS + 1) * degree, torch.zeros(ROWS * degree, dtype=torch.int64), None)


@pytest.mark.parametrize(
    ('all_bytes', 'degree', 'count'),
    [
        (BLOCK_BYTES, 1_000, 1),
        (BLOCK_BYTES + 256, 1_000, 2),
        (2 * BLOCK_BYTES, 2 * LEAST_RUN - 1, 1),
        (4 * BLOCK_BYTES, 1_000, 4),
        (4 * BLOCK_BYTES, 3 * LEAST_RUN, 3),
        # blocks of so many nodes would be in no cache
        (2 * WIDER * BLOCK_BYTES, 2 * LEAST_RUN, 2),
        (2 * WIDER * BLOCK_BYTES + 256, 2 * LEAST_RUN, 1),
        (MANY * WIDER_OF_MANY * BLOCK_BYTES, MANY * LEAST_RUN, MANY),
        (MANY * WIDER_OF_MANY * BLOCK_BYTES + 256, MANY * LEAST_RUN, 1),
        (4 * BLOCK_BYTES, LEAST_RUN, 1),
    ],
)
def test_as_many_as_a_cache_asks_for_and_rows_have_edges_for(all_bytes, degree, count):
    assert count_of_blocks(edges_by_row(degree), all_bytes // 256, 256) == count


def test_widths_that_are_nearly_the_same_have_the_same_blocks():
    csr, nodes = edges_by_row(1_000), BLOCK_BYTES // 64
    counts = [count_of_blocks(csr, nodes, width) for width in (200, 256, 260, 288, 320, 512, 576)]
    assert counts == [4] * 4 + [8] * 3


def test_no_rows():
    csr = Csr(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int64), None)
    assert count_of_blocks(csr, 10**6, 256) == 1
