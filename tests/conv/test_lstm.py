from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg

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
