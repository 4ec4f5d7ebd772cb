"""Batch normalisation over edges."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, Linear, ReLU

from tests.support.edge_conv import FEATURES, HIDDEN, NETWORKS, RANDOM, check, norms, one, pair
from tests.support.parity import Example, assert_close, random_edges, results


@pytest.mark.parametrize(
    'options',
    [
        {'momentum': None},
        {'momentum': 0.5, 'eps': 0.1},
        {'track_running_stats': False},
        {'affine': False},
        {'affine': False, 'track_running_stats': False},
    ],
    ids=str,
)
@pytest.mark.parametrize('order', ['before', 'after', 'deep'])
def test_options_of_batch_normalisation(order, options):
    norm = BatchNorm1d(HIDDEN, **options)
    nn = {
        'before': lambda: one(norm, ReLU()),
        'after': lambda: one(ReLU(), norm),
        'deep': lambda: one(ReLU(), Linear(HIDDEN, HIDDEN), norm, ReLU()),
    }[order]()
    check(nn, 'max', RANDOM)


def test_batch_normalisation_that_is_frozen_while_the_rest_trains():
    conv, twin = pair(one(BatchNorm1d(HIDDEN), ReLU()))
    for module in (*norms(conv), *norms(twin)):
        module.eval()
    x = RANDOM.x(FEATURES).double()
    torch.testing.assert_close(twin(x, RANDOM.edge_index), conv(x, RANDOM.edge_index))
    assert torch.equal(norms(twin)[0].running_mean, norms(conv)[0].running_mean)
    assert norms(twin)[0].num_batches_tracked == 0


@pytest.mark.parametrize('name', ['norm, relu', 'relu, norm', 'two, norm after each'])
def test_one_edge_in_training_fails_as_in_torch(name):
    edge_index, x = torch.tensor([[0], [1]]), torch.randn(3, FEATURES).double()
    messages = []
    for conv in pair(NETWORKS[name]()):
        with pytest.raises(ValueError, match='more than 1 value per channel') as caught:
            conv(x, edge_index)
        messages.append(str(caught.value))
        assert norms(conv)[0].num_batches_tracked == 1
        conv.eval()
        assert conv(x, edge_index).shape[0] == 3
    assert messages[0] == messages[1]


@pytest.mark.parametrize('num_edges', [0, 1, 2])
def test_a_single_edge_where_an_option_allows_it(num_edges):
    edge_index = random_edges(3, 3, num_edges)
    check(one(pyg.BatchNorm(HIDDEN, allow_single_element=True), ReLU()), 'max', Example(edge_index, 3, 3))


@pytest.mark.parametrize('name', ['norm, relu', 'two, norm after each'])
def test_statistics_far_from_zero(name):
    """The mean is 100 standard deviations away: a variance from sums of squares would have three correct digits."""
    conv, twin = pair(NETWORKS[name](), dtype=torch.float32)
    reference = copy.deepcopy(conv).double()
    with torch.no_grad():
        for module in (conv, twin, reference):
            next(m for m in module.modules() if isinstance(m, Linear | pyg.Linear)).bias += 100
    arguments = {'x': RANDOM.x(FEATURES), 'edge_index': RANDOM.edge_index}
    wanted = results(reference, arguments, torch.float64, 0)
    assert_close(results(twin, arguments, torch.float32, 0), wanted, results(conv, arguments, torch.float32, 0))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['elu', 'selu, norm', 'silu, norm', 'norm, softplus', 'sigmoid, norm', 'tanh, norm'])
def test_values_whose_exponentials_overflow(name):
    check(NETWORKS[name](), 'sum', RANDOM, x=1e4 * RANDOM.x(FEATURES))
