"""Modules whose values have their rows at another dimension than the first."""

from __future__ import annotations

import copy

import pytest
import torch

import pygfuse
from tests.compiler import modules_of_turned as turned
from tests.conv.modules.arguments import assert_same, assert_same_in_traces, given

MODULES = (
    turned.SparseAttention, turned.HeadsFirst, turned.Diffusion, turned.Reshaped, turned.HeadsWithMaps, turned.AllToAll,
    turned.InPlace, turned.Lifted, turned.PartsOfRows, turned.WithoutGradients,
    turned.OneHead,
)  # fmt: skip


def arguments(**sizes):
    data = given(**sizes)
    return {'x': data['x'], 'edge_index': data['edge_index']}


@pytest.mark.parametrize('kind', MODULES, ids=lambda kind: kind.__name__)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), arguments())


@pytest.mark.parametrize('kind', MODULES, ids=lambda kind: kind.__name__)
def test_other_numbers_of_nodes_and_edges(kind):
    torch.manual_seed(0)
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for nodes, edges in ((40, 300), (53, 170), (31, 400)):
        inputs = arguments(nodes=nodes, edges=edges)
        torch.testing.assert_close(compiled(**inputs), module(**inputs), rtol=1e-3, atol=1e-4)
        assert compiled.note.reason is None


@pytest.mark.parametrize('kind', [turned.HeadsFirst, turned.Returned])
def test_within_torch_compile(kind):
    torch.manual_seed(0)
    assert_same_in_traces(kind(), arguments())


def test_all_nodes_together_are_captured_once():
    compiled = pygfuse.compile(turned.AllToAll())
    for nodes in (40, 53):
        compiled(**arguments(nodes=nodes))
    assert len(compiled.plans()) == 1


def test_results_have_their_rows_where_its_own_code_has_them():
    module = turned.Returned()
    compiled = pygfuse.compile(copy.deepcopy(module))
    inputs = arguments()
    for found, expected in zip(compiled(**inputs), module(**inputs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        assert found.is_contiguous()
    assert compiled.note.reason is None


def test_sums_over_edges_and_what_is_unknown():
    module = turned.OverEdges()
    compiled = pygfuse.compile(copy.deepcopy(module))
    inputs = arguments()
    torch.testing.assert_close(compiled(**inputs), module(**inputs), rtol=1e-3, atol=1e-4)
    assert compiled.note.reason is None
    for kind in (turned.SortedEdges, turned.WrittenInto, turned.WrittenDiagonal):
        module = kind()
        compiled = pygfuse.compile(copy.deepcopy(module))
        torch.testing.assert_close(compiled(**inputs), module(**inputs), rtol=1e-3, atol=1e-4)
        assert compiled.note.reason is not None


@pytest.mark.parametrize('view', turned.VIEWS)
def test_writes_into_views_are_seen_or_refused(view):
    torch.manual_seed(0)
    module, inputs = turned.WrittenViews(view), arguments()
    torch.testing.assert_close(pygfuse.compile(copy.deepcopy(module))(**inputs), module(**inputs), rtol=1e-3, atol=1e-4)
