"""What runs the path of PyG, and why."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, LayerNorm, Linear, Module, ReLU, Sequential

from pygfuse.conv import EdgeConv
from tests.support.edge_conv import FEATURES, HIDDEN, OUT, RANDOM, WIDE, one, pair


class Doubled(ReLU):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked(kind: str) -> Module:
    nn = one(BatchNorm1d(HIDDEN), ReLU())
    getattr(nn[1], f'register_{kind}')(lambda *arguments: None)
    return nn


def zero_scale() -> Module:
    nn = one(BatchNorm1d(HIDDEN), ReLU())
    torch.nn.init.zeros_(nn[1].weight[2:3])
    return nn


FALL_BACK = {
    'LayerNorm': lambda: one(LayerNorm(HIDDEN)),
    'Doubled': lambda: one(Doubled()),
    'a hook is registered on nn.1': lambda: hooked('forward_hook'),
    'does not begin with a Linear': lambda: Sequential(ReLU(), Linear(WIDE, OUT)),
    'scale of a BatchNorm is zero': zero_scale,
    'normalises by batch': lambda: pyg.MLP([WIDE, HIDDEN, OUT], norm='LayerNorm'),
    'nn.act is': lambda: pyg.MLP([WIDE, HIDDEN, OUT], act=torch.sin),
}


@pytest.mark.parametrize('reason', FALL_BACK)
def test_what_falls_back(reason):
    nn = FALL_BACK[reason]()
    conv, twin = pyg.EdgeConv(nn), EdgeConv(nn)
    nn_state = copy.deepcopy(nn.state_dict())
    found = []
    for layer in (conv, twin):
        nn.load_state_dict(nn_state)
        if reason == 'scale of a BatchNorm is zero':
            torch.nn.init.zeros_(nn[1].weight[2:3])
        torch.manual_seed(1)
        found.append(layer(RANDOM.x(FEATURES), RANDOM.edge_index))
    assert torch.equal(found[0], found[1])
    assert reason in twin.note.reason


def test_a_function_falls_back():
    weight = torch.randn(WIDE, OUT)
    twin = EdgeConv(lambda h: h @ weight)
    x = RANDOM.x(FEATURES)
    assert torch.equal(twin(x, RANDOM.edge_index), pyg.EdgeConv(lambda h: h @ weight)(x, RANDOM.edge_index))
    assert twin.note.reason == 'nn is no module'


def test_a_lazy_network_runs_the_path_of_pyg_once():
    twin = EdgeConv(pyg.MLP([-1, HIDDEN, OUT]))
    twin(RANDOM.x(FEATURES), RANDOM.edge_index)
    assert 'before its first call' in twin.note.reason
    twin(RANDOM.x(FEATURES), RANDOM.edge_index)
    assert twin.note.reason is None


def test_dropout_is_fused_in_evaluation():
    nn = pyg.MLP([WIDE, HIDDEN, OUT], dropout=0.5)
    conv, twin = pair(nn)
    conv.eval(), twin.eval()
    x = RANDOM.x(FEATURES).double()
    torch.testing.assert_close(twin(x, RANDOM.edge_index), conv(x, RANDOM.edge_index))
    assert twin.note.reason is None


def test_networks_of_another_type_or_device():
    twin = EdgeConv(one(BatchNorm1d(HIDDEN, dtype=torch.float64), ReLU()))
    with pytest.raises(RuntimeError):  # of torch, on PyG's path
        twin(RANDOM.x(FEATURES), RANDOM.edge_index)
    assert 'several types' in twin.note.reason
    with pytest.raises(ValueError, match='weight 1 of nn'):
        EdgeConv(one(BatchNorm1d(HIDDEN, device='meta')))(RANDOM.x(FEATURES), RANDOM.edge_index)
