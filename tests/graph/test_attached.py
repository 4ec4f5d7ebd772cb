"""One cache for what belongs to a user's tensor."""

import gc

import torch

from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph
from pygfuse.hag.attach import attach, attached
from pygfuse.partial.paths.path import are_attached, attach_distances
from pygfuse.partial.rows.row_set import RowSet
from pygfuse.transforms import find_hag


def test_what_belongs_to_a_tensor_lies_side_by_side_and_goes_together():
    gc.collect()
    entries = len(ATTACHED)
    edge_index = torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]])
    attach(edge_index, find_hag(edge_index.clone()))
    attach_distances(edge_index, lambda: None)
    graph, rows = Graph.of(edge_index), RowSet.of(edge_index[1], 9)
    # the rows' tensor is a view that died
    assert len(ATTACHED) == entries + 1
    assert attached(edge_index).hag().num_edges == 6
    assert are_attached(edge_index)
    assert Graph.of(edge_index) is graph
    assert len(rows) == 2
    edge_index[0, 0] = 4
    assert attached(edge_index) is None
    assert not are_attached(edge_index)
    assert Graph.of(edge_index) is not graph
