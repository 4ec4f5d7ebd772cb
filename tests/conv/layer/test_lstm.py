from __future__ import annotations

import functools

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn.utils import parametrizations, prune

import pygfuse.conv
from tests.support.parity import Parity, random_edges

PARITY = Parity(pyg.SAGEConv, pygfuse.conv.SAGEConv)
OPTIONS = {'in_channels': 6, 'out_channels': 4, 'aggr': 'lstm'}


def similar_lists(num_targets: int = 30):
    """Targets whose neighbours are beginnings of a few lists."""
    generator = torch.Generator().manual_seed(0)
    lists = torch.randint(num_targets, (3, 6), generator=generator)
    degrees = torch.arange(num_targets) % 7
    rows = [lists[target % 3][:degree] for target, degree in enumerate(degrees.tolist())]
    return torch.stack([torch.cat(rows), torch.arange(num_targets).repeat_interleave(degrees)])


@pytest.mark.parametrize('options', [{}, {'project': True, 'normalize': True}, {'root_weight': False}], ids=str)
def test_the_same_numbers(options):
    PARITY.check({**OPTIONS, **options}, x=torch.randn(30, 6), edge_index=similar_lists())


def test_between_different_nodes():
    edge_index = similar_lists()
    PARITY.check(OPTIONS, x=(torch.randn(30, 6), torch.randn(33, 6)), edge_index=edge_index)


def check_falls_back(reason: str, edge_index, **options) -> None:
    plain, fused = PARITY.make({**OPTIONS, **options})
    x = torch.randn(30, 6)
    assert torch.equal(fused(x, edge_index), plain(x, edge_index))
    assert reason in fused.note.reason


def test_what_runs_the_own_path_of_pyg():
    edge_index = random_edges(30, 30, 200)
    edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    check_falls_back('share too little', edge_index)
    check_falls_back('several layers', similar_lists(), aggr_kwargs={'num_layers': 2})
    with pytest.raises(ValueError, match='not sorted'):
        PARITY.make(OPTIONS)[1](torch.randn(30, 6), similar_lists().flip(1))


def test_hooks_of_the_lstm_are_called():
    fused = PARITY.make(OPTIONS)[1]
    called = []
    fused.aggr_module.lstm.register_forward_hook(lambda *arguments: called.append(1))
    fused(torch.randn(30, 6), similar_lists())
    assert called


PRUNED = functools.partial(prune.random_unstructured, amount=0.4)


@pytest.mark.parametrize('parametrized', [parametrizations.weight_norm, PRUNED], ids=['normalised', 'pruned'])
def test_weights_that_are_computed(parametrized):
    """torch's LSTM does not see all of them."""
    plain, fused = PARITY.make(OPTIONS)
    for conv in (plain, fused):
        torch.manual_seed(0)
        parametrized(conv.aggr_module.lstm, 'weight_ih_l0')
        with torch.no_grad():
            for parameter in conv.aggr_module.lstm.parameters():
                parameter.mul_(2)
    x = torch.randn(30, 6)
    torch.testing.assert_close(fused(x, similar_lists()), plain(x, similar_lists()))
    assert 'are computed' in fused.note.reason
