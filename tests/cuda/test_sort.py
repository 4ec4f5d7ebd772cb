"""Sorting by torch's operators, on the CPU, against the CPU backend's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.cpu import sort as expected
from pygfuse.cuda import sort


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 2**31), st.sampled_from([None, 0, 1]), st.booleans())
def test_rows_and_columns_equal_the_cpu(nodes, edges, seed, loops, ordered):
    generator = torch.Generator().manual_seed(seed)
    targets, sources = torch.randint(nodes, (2, edges), generator=generator)
    targets = targets.sort().values if ordered else targets
    found = sort.sort_by_target(targets, sources, nodes, nodes, loops, torch.int32)
    right = expected.sort_by_target(targets, sources, nodes, nodes, loops, torch.int32)
    for mine, theirs in zip(found, right, strict=True):
        assert (mine is None and theirs is None) or (mine.dtype == theirs.dtype and torch.equal(mine, theirs))
    for mine, theirs in zip(
        sort.transpose(*found[:2], nodes), expected.transpose(*right[:2], nodes), strict=True
    ):  # fmt: skip
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(('targets', 'sources'), [([0, 3], [0, 0]), ([0, -1], [0, 0]), ([0, 1], [0, 2])])
def test_nodes_out_of_range(targets, sources):
    with pytest.raises(IndexError, match='does not exist'):
        sort.sort_by_target(torch.tensor(targets), torch.tensor(sources), 3, 2, None, torch.int64)
