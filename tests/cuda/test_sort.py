"""Sorting by torch's operators, on the CPU, against the CPU backend's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.cpu.edges import sort as expected
from pygfuse.cuda.edges import sort
from pygfuse.cuda.row_tiling import parts_of
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Mapping, force_mapping
from tests.support.comparison import random_graph
from tests.support.waits import waits


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


# rows, columns and their cuts; a cut waits for the largest degree
@pytest.mark.usefixtures('in_place_of_the_cpu')
@pytest.mark.parametrize('loops', [False, True])
def test_the_host_waits_once_for_rows_and_never_for_columns(loops):
    edge_index = torch.randint(1000, (2, 2000), generator=torch.Generator().manual_seed(0))
    graph = Graph.of(edge_index, num_sources=1000, num_targets=1000)
    graph = graph.with_self_loops() if loops else graph
    with waits() as found:
        rows = graph.csr
    assert found == {'tolist': 1}
    with waits() as found:
        columns = graph.csc
        assert len(graph.place_in_csc) == columns.num_edges
    assert found == {}
    for edges in (rows, columns):
        with waits() as found:
            parts = parts_of(edges, 256)
        assert found == {'aten._local_scalar_dense': 1}
        assert parts.count > 1


@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_the_host_waits_three_times_for_a_cut_through_rows():
    graph = random_graph(50, 40, 300, hub=3000)
    edges = graph.csr
    with force_mapping(Mapping('edge', part_work=16)), waits() as found:
        assert parts_of(edges, 256).num_split_rows > 0
    assert sum(found.values()) == 3, found
