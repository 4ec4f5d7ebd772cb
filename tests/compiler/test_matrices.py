"""Sparse adjacencies: where PyG multiplies with the matrix, compiled layers compute what the product does."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import SparseTensor

import pygfuse
from tests.support.parity import GRAPHS, assert_close, results

WEIGHED = {
    'LGConv': lambda: pyg.LGConv(normalize=False),
    'GatedGraphConv': lambda: pyg.GatedGraphConv(8, 2),
    'TAGConv': lambda: pyg.TAGConv(8, 4, K=2, normalize=False),
    'SimpleConv': lambda: pyg.SimpleConv(),
}
PRODUCT = 'message_and_aggregate of a sparse adjacency'


def matrix_of(example):
    """The transposed adjacency with values."""
    edges = torch.unique(example.edge_index, dim=1)
    values = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(1)) + 0.5
    return torch.sparse_coo_tensor(edges.flip(0), values, (example.num_targets, example.num_sources)).coalesce()


def check(make, adjacency, reason=None, **given) -> None:
    torch.manual_seed(0)
    plain = make()
    conv = pygfuse.fuse(copy.deepcopy(plain))
    given = {'x': GRAPHS['random']().x(8), 'edge_index': adjacency, **given}
    found = results(copy.deepcopy(conv), given, torch.float32, 0)
    assert_close(found, results(plain, given, torch.float32, 0))
    conv(**given)
    assert conv.note.reason == reason


@pytest.mark.parametrize('make', WEIGHED.values(), ids=WEIGHED)
@pytest.mark.parametrize('weights', ['given', 'not given'])
def test_weights_that_are_given_beside_a_matrix_are_not_read(make, weights):
    matrix = matrix_of(GRAPHS['random']())
    given = {'edge_weight': torch.rand(matrix.values().numel())} if weights == 'given' else {}
    check(make, matrix.to_sparse_csr(), **given)


def test_a_matrix_without_values_weighs_nothing(needs_torch_sparse):
    target, source = matrix_of(GRAPHS['random']()).indices()
    check(lambda: pyg.MFConv(8, 4, max_degree=3), SparseTensor(row=target, col=source, sparse_sizes=(60, 60)))


@pytest.mark.parametrize('aggregators', [['mean', 'max'], ['symnorm', 'std']])
def test_a_class_with_an_aggregation_of_its_own_runs_its_own_product(aggregators):
    matrix = matrix_of(GRAPHS['random']()).to_sparse_csr()
    options = {'aggregators': aggregators, 'num_heads': 2, 'add_self_loops': False}
    check(lambda: pyg.EGConv(8, 4, **options), matrix, PRODUCT)


def test_nor_does_it_run_another_one_without_values(needs_torch_sparse):
    target, source = matrix_of(GRAPHS['random']()).indices()
    adjacency = SparseTensor(row=target, col=source, sparse_sizes=(60, 60))
    options = {'aggregators': ['mean', 'max'], 'num_heads': 2, 'add_self_loops': False}
    check(lambda: pyg.EGConv(8, 4, **options), adjacency, PRODUCT)
