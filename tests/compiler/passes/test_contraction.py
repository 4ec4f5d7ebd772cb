from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.ir.values import leaf, value
from pygfuse.compiler.passes.contraction import contract_edge_features
from tests.compiler.support import check, edge, on_edges, shared
from tests.support.parity import GRAPHS, assert_close, results


@pytest.mark.parametrize('with_bias', [False, True])
def test_a_stack_of_maps_of_the_same_features_is_one_map(with_bias):
    features = edge(3)
    maps = [value('linear', features, shared(4, 3, name=f'weight {k}')) for k in range(3)]
    if with_bias:
        maps = [value('add', one, shared(4, name=f'bias {k}')) for k, one in enumerate(maps)]
    found = check(contract_edge_features, value('stack', tuple(maps), dim=1))
    assert len(on_edges(found, 'linear')) == 1
    assert not on_edges(found, 'stack')


@pytest.mark.parametrize('residency', ['source', 'target'])
def test_a_stack_of_maps_of_the_same_nodes_is_one_map(residency):
    x = leaf('x', residency, (3,), torch.float64)
    stack = value('stack', tuple(value('linear', x, shared(4, 3, name=f'weight {k}')) for k in range(3)), dim=1)
    found = contract_edge_features(stack)
    assert found.op == 'reshape'
    assert found.args[0].op == 'linear'
    assert found.args[0].args[0] is x


@pytest.mark.parametrize('residency', ['source', 'edge'])
def test_a_map_of_a_row_seen_another_way_is_one_of_the_row(residency):
    x = leaf('x', residency, (3,), torch.float64)
    towers = value('repeat', value('reshape', x, shape=(1, 3)), repeats=(2, 1))
    whole, part = value('index', towers, places=(1,)), value('index', towers, places=(1, slice(1, 3)))
    assert contract_edge_features(value('linear', whole, shared(4, 3))).args[0] is x
    mapped = value('linear', part, shared(4, 2))
    assert contract_edge_features(mapped) is mapped


@pytest.mark.parametrize('case', ['other features', 'along the last dimension'])
def test_others_stay_as_they_are(case):
    first, second = edge(3), edge(3)
    maps = [value('linear', one, shared(4, 3)) for one in (first, second if case == 'other features' else first)]
    stack = value('stack', tuple(maps), dim=2 if case == 'along the last dimension' else 1)
    assert contract_edge_features(stack) is stack


def test_towers_with_features_of_edges_are_programs():
    example = GRAPHS['random']()
    torch.manual_seed(0)
    options = {
        'aggregators': ['mean', 'max', 'std'],
        'scalers': ['identity', 'amplification'],
        'deg': torch.ones(9).long(),
    }
    plain = pyg.PNAConv(8, 8, edge_dim=3, towers=2, divide_input=False, pre_layers=1, **options)
    conv = pygfuse.fuse(copy.deepcopy(plain))
    given = {'x': example.x(8), 'edge_index': example.edge_index, 'edge_attr': example.edge_attr(3)}
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))
    assert conv.note.reason is None
    (plan,) = conv.plans()
    assert all(isinstance(form, Walk) for form in plan.walks.values())
