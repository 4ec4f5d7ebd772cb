"""Models over several types of nodes and edges, whose layers PyG makes of those for one type."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from tests.conv.test_hgt_conv import METADATA, edges, features
from tests.support.parity import assert_close


class Model(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.first, self.second = conv(), conv()

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def to_hetero(conv):
    return pyg.to_hetero(Model(conv), METADATA)


def hetero_conv(conv):
    return pyg.HeteroConv({kind: conv() for kind in METADATA[1]}, aggr='sum')


CONVS = {
    'SAGEConv': lambda: pyg.SAGEConv((8, 8), 8),
    'GATConv': lambda: pyg.GATConv((8, 8), 4, heads=2, add_self_loops=False),
    'TransformerConv': lambda: pyg.TransformerConv((8, 8), 4, heads=2),
    'compiled': lambda: pyg.GENConv((8, 8), 8),
}


def results(model, dtype):
    model = model.to(dtype)
    x = {kind: rows.to(dtype).requires_grad_() for kind, rows in features().items()}
    out = model(x, edges())
    sum((rows * torch.arange(rows.numel()).view_as(rows).sin()).sum() for rows in out.values()).backward()
    found = dict(out) | {f'gradient of {kind}': rows.grad for kind, rows in x.items()}
    return found | {f'gradient of {name}': parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize('make', [to_hetero, hetero_conv])
@pytest.mark.parametrize('conv', CONVS)
def test_models_are_fused_layer_by_layer(make, conv):
    torch.manual_seed(0)
    plain = make(CONVS[conv])
    fused = pygfuse.fuse(copy.deepcopy(plain))
    reference, found = results(copy.deepcopy(plain), torch.float64), results(fused, torch.float32)
    assert_close(found, reference, results(plain, torch.float32))
    layers = [layer for layer in fused.modules() if isinstance(layer, pyg.MessagePassing)]
    reasons = {layer.note.reason for layer in layers}
    # compiled layers leave a type without edges to PyG
    assert reasons <= ({None, 'there are no edges'} if conv == 'compiled' else {None})
    assert None in reasons
