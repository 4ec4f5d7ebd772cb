from __future__ import annotations

import copy
import re

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, Dropout, Identity, Linear, PReLU, ReLU, Sequential

from pygfuse.conv import EdgeConv
from pygfuse.conv._edge_mlp.network import UnsupportedNetwork, check_widths, stages_of, tensors_of_stages


def kinds(nn) -> list[str]:
    return [type(stage).__name__ for stage in stages_of(nn)]


def test_stages_are_in_the_order_of_the_network():
    nn = Sequential(Linear(4, 3), Sequential(ReLU(), BatchNorm1d(3), Identity()), Dropout(0.0), Linear(3, 2), PReLU())
    assert kinds(nn) == ['Linear', 'Activation', 'Norm', 'Linear', 'Slope']


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({}, ['Linear', 'Norm', 'Activation', 'Linear']),
        ({'act_first': True}, ['Linear', 'Activation', 'Norm', 'Linear']),
        ({'plain_last': False}, ['Linear', 'Norm', 'Activation'] * 2),
        ({'norm': None}, ['Linear', 'Activation', 'Linear']),
        ({'act': None, 'plain_last': False}, ['Linear', 'Norm'] * 2),
        ({'act': 'prelu'}, ['Linear', 'Norm', 'Slope', 'Linear']),
    ],
    ids=str,
)
def test_options_of_an_mlp(options, expected):
    assert kinds(pyg.MLP([4, 3, 2], **options)) == expected


def test_tensors_are_named_apart():
    nn = Sequential(Linear(4, 3), BatchNorm1d(3), PReLU(), Linear(3, 2, bias=False), BatchNorm1d(2, affine=False))
    assert list(tensors_of_stages(stages_of(nn))) == [
        *('weight 0 of nn', 'bias 0 of nn'),
        *('weight 1 of nn', 'bias 1 of nn', 'running_mean 1 of nn', 'running_var 1 of nn'),
        *('slope 2 of nn', 'weight 3 of nn', 'running_mean 4 of nn', 'running_var 4 of nn'),
    ]


def test_a_forward_that_was_replaced_is_not_overruled():
    nn = Sequential(Linear(4, 3), ReLU())
    nn[0].forward = lambda x: x
    with pytest.raises(UnsupportedNetwork, match=r'forward of nn\.0 is overridden'):
        stages_of(nn)


def test_dropout_counts_in_training_only():
    nn = Sequential(Linear(4, 3), Dropout(0.5))
    assert kinds(nn) == ['Linear', 'Dropout']
    nn.eval()
    assert kinds(nn) == ['Linear']
    assert torch.equal(nn(torch.ones(1, 4)), nn[0](torch.ones(1, 4)))


def test_a_module_that_comes_twice_is_two_stages():
    act = ReLU()
    assert kinds(Sequential(Linear(4, 3), act, Linear(3, 3), act)) == ['Linear', 'Activation', 'Linear', 'Activation']


OF_ANOTHER_WIDTH = {
    'a normalisation of one': (lambda: Sequential(Linear(6, 8), BatchNorm1d(1), ReLU()), "'nn.1' (BatchNorm1d)", 8, 1),
    'a normalisation': (lambda: Sequential(Linear(6, 8), ReLU(), BatchNorm1d(4)), "'nn.2' (BatchNorm1d)", 8, 4),
    "PyG's": (lambda: Sequential(Linear(6, 8), pyg.BatchNorm(4)), "'nn.1' (BatchNorm1d)", 8, 4),
    'slopes': (lambda: Sequential(Linear(6, 8), Sequential(PReLU(4))), "'nn.1.0' (PReLU)", 8, 4),
    'a linear map': (lambda: Sequential(Linear(6, 8), Linear(8, 3), ReLU(), Linear(8, 2)), "'nn.3' (Linear)", 3, 8),
}


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('name', OF_ANOTHER_WIDTH)
def test_a_stage_of_another_width_is_named(name, training):
    network, stage, came, taken = OF_ANOTHER_WIDTH[name]
    nn = network().train(training)
    before = copy.deepcopy(nn.state_dict())
    message = f'Expected {stage} to take {came} features, as many as come into it (got {taken})'
    with pytest.raises(ValueError, match=re.escape(message)):
        EdgeConv(nn, aggr='mean')(torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert all(torch.equal(nn.state_dict()[key], before[key]) for key in before if 'running' in key)


def test_a_normalisation_without_tensors_takes_any_width():
    check_widths(stages_of(Sequential(Linear(6, 8), BatchNorm1d(1, affine=False, track_running_stats=False), PReLU())))
