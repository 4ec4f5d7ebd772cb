"""What an earlier version pickled still loads and works."""

import importlib
import pickle
from pathlib import Path

import pytest
import torch

from pygfuse import Mapping, execution_paths
from pygfuse._lib.former_names import FORMER_NAMES
from pygfuse.graph.graph import Graph
from pygfuse.hag.attach import attached
from pygfuse.transforms import HagData, PathData, ToExecutionPaths, ToHAG, find_hag

# written when graph, hag and mapping were modules of their own at the root
FILE = Path(__file__).parents[1] / 'support' / 'former_version.pickle'


@pytest.fixture
def loaded():
    return pickle.loads(FILE.read_bytes())


def test_graphs(loaded):
    graph, with_loops, expected = loaded['graph'], loaded['with_self_loops'], Graph.of(loaded['edge_index'])
    for found, right in ((graph, expected), (graph.with_self_loops(), expected.with_self_loops())):
        assert torch.equal(found.csr.indptr, right.csr.indptr)
        assert torch.equal(found.csc.index, right.csc.index)
    assert torch.equal(with_loops.csr.index, expected.with_self_loops().csr.index)
    assert Graph.of(graph.token) is graph
    assert graph.with_self_loops() is graph.with_self_loops()


def test_hags(loaded):
    hag, expected = loaded['hag'], find_hag(loaded['edge_index'])
    assert torch.equal(hag.cover(), expected.cover())
    assert torch.equal(hag.reversed.cover(), expected.reversed.cover())
    assert loaded['cost'] == hag.cost()
    assert loaded['tree'].num_steps.ratio > 1


def test_data(loaded):
    hag_data, path_data = loaded['hag_data'], loaded['path_data']
    assert type(hag_data) is HagData
    assert type(path_data) is PathData
    assert hag_data.hag.num_aggregation_nodes == 1
    assert attached(hag_data.edge_index) is not None
    assert path_data.path_distances.tolist() == [0, 0, 1, 1, 1, 255]
    assert type(loaded['to_hag']) is ToHAG
    assert type(loaded['to_execution_paths']) is ToExecutionPaths


def test_mappings(loaded):
    assert loaded['mapping'] == Mapping('edge', part_work=77)
    assert None in loaded['tuning'].seconds


def test_a_layer_that_ran(loaded):
    conv, x, edge_index = loaded['conv'], loaded['x'], loaded['edge_index']
    with execution_paths(True):
        out = conv(x, edge_index)
        out[:1].sum().backward()
    assert torch.allclose(out, loaded['out'], atol=1e-6)
    assert conv.note.backward.rows == 1


@pytest.mark.parametrize('name', FORMER_NAMES)
def test_nothing_else_is_found_there(name):
    module = importlib.import_module(name)
    for found in FORMER_NAMES[name]:
        assert getattr(module, found).__name__ == found
    with pytest.raises(AttributeError, match=f'{name}.*other'):
        module.other  # noqa: B018
