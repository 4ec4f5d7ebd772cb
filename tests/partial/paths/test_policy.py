"""When backward looks for execution paths, and when it makes one."""

from __future__ import annotations

import pytest
import torch

import pygfuse
from pygfuse.conv import GCNConv, SAGEConv
from pygfuse.cpu import adjoint
from pygfuse.cuda.edges import row_search as search_that_synchronises
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths import path, policy
from pygfuse.partial.paths.attach import attach_distances
from pygfuse.partial.paths.path import known_paths
from tests.support.parity import random_edges
from tests.support.paths import WIDTH, Model, gradients, graph_with_loops


@pytest.fixture
def always_worth_a_look(monkeypatch):
    monkeypatch.setattr(policy, 'WORTH_A_LOOK', 0.0001)
    # nor are few edges walked without a look
    monkeypatch.setattr(adjoint, 'is_single_part', lambda *_: False)
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    return monkeypatch


def test_a_path_is_made_once_it_would_have_paid(always_worth_a_look):
    edge_index, x, model = random_edges(900, 900, 2500), torch.randn(900, WIDTH), Model(GCNConv, 1)
    mask, graph = torch.arange(900) < 9, graph_with_loops(edge_index, 900)
    gradients(model, x, edge_index, mask, on=None)
    assert not known_paths(graph)
    assert model.convs[0].note.backward.walked_edges == graph.num_edges
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    (known,) = known_paths(graph)
    assert known.num_edges == model.convs[0].note.backward.edges == model.convs[0].note.backward.walked_edges


def test_small_and_all_active_graphs_are_not_looked_at():
    edge_index, x, model = random_edges(90, 90, 300), torch.randn(90, WIDTH), Model(GCNConv, 1)
    gradients(model, x, edge_index, torch.arange(90) < 3, on=None)
    assert model.convs[0].note.backward.rows is None
    assert 'backward' not in str(pygfuse.report(model))


def test_a_gradient_that_is_nearly_whole_is_left_to_the_whole_walk(always_worth_a_look):
    edge_index, x, model = random_edges(900, 900, 2500), torch.randn(900, WIDTH), Model(GCNConv, 1)
    mask = torch.arange(900) % 10 < 8
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    assert not known_paths(graph_with_loops(edge_index, 900))
    assert model.convs[0].note.backward.rows is None


@pytest.fixture
def _looks_synchronise(monkeypatch):
    for module in (path, policy):
        monkeypatch.setattr(module, 'row_search_of', lambda device: search_that_synchronises)


@pytest.mark.usefixtures('_looks_synchronise', 'always_worth_a_look')
def test_where_looks_synchronise_only_prepared_paths_are_looked_for():
    edge_index, x, model = random_edges(900, 900, 2500), torch.randn(900, WIDTH), Model(SAGEConv, 1)
    mask, graph = torch.arange(900) < 9, Graph.of(edge_index, num_sources=900, num_targets=900)
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    assert model.convs[0].note.backward.rows is None
    attach_distances(edge_index, lambda: torch.where(torch.arange(900) < 20, 0, 255).to(torch.uint8))
    gradients(model, x, edge_index, mask, on=None, repeats=9)
    (known,) = known_paths(graph)  # none was made for these rows alone
    assert model.convs[0].note.backward.rows == 9
    assert model.convs[0].note.backward.walked_edges == known.num_edges < graph.num_edges
    gradients(model, x, edge_index, mask)
    assert model.convs[0].note.backward.walked_edges == model.convs[0].note.backward.edges < known.num_edges


@pytest.mark.usefixtures('_looks_synchronise')
def test_nobody_looks_while_a_cuda_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: True)
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: True)
    edge_index, x, model = random_edges(90, 90, 300), torch.randn(90, WIDTH), Model(SAGEConv, 1)
    attach_distances(edge_index, lambda: pytest.fail('somebody looked'))
    gradients(model, x, edge_index, torch.arange(90) < 3)
    assert model.convs[0].note.backward.walked_edges == 300
    assert model.convs[0].note.backward.rows is None
