"""Scores of any magnitude: the error of softmax layers stays near that of PyG's own float32 results."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse.conv
from pygfuse.mapping.mapping import Mapping, force_mapping
from tests.support.parity import random_edges

NODES, FEATURES, HEADS = 40, 16, 2
MAGNITUDES = [1e-8, 1e-4, 1.0, 1e2, 1e4]
LAYERS = {
    'GATConv': {'in_channels': FEATURES, 'out_channels': 8, 'heads': HEADS},
    'GATv2Conv': {'in_channels': FEATURES, 'out_channels': 8, 'heads': HEADS},
    'TransformerConv': {'in_channels': FEATURES, 'out_channels': 8, 'heads': HEADS},
    'AGNNConv': {},
}
# what scores are proportional to
SCALED = {
    'GATConv': ('att_src', 'att_dst'),
    'GATv2Conv': ('att',),
    'TransformerConv': ('lin_query.weight', 'lin_query.bias'),
    'AGNNConv': ('beta',),
}


def _layers(name: str, magnitude: float) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    theirs = getattr(pyg, name)(**LAYERS[name])
    for key in SCALED[name]:
        with torch.no_grad():
            theirs.get_parameter(key).mul_(magnitude)
    ours = getattr(pygfuse.conv, name)(**LAYERS[name])
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def _results(conv: torch.nn.Module, x: Tensor, edge_index: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    conv, x = conv.to(dtype), x.to(dtype).requires_grad_()
    out = conv(x, edge_index)
    names, parameters = zip(*[('x', x), *conv.named_parameters()], strict=True)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = torch.autograd.grad(out, parameters, grad)
    return {'output': out.detach().double(), **{k: v.double() for k, v in zip(names, found, strict=True)}}


@pytest.mark.parametrize('two_pass', [False, True], ids=['one pass', 'two passes'])
@pytest.mark.parametrize('magnitude', MAGNITUDES)
@pytest.mark.parametrize('name', LAYERS)
def test_softmax_of_scores_of_any_magnitude(name, magnitude, two_pass):
    theirs, ours = _layers(name, magnitude)
    # integers of few bits: scores have the same rounding in whatever order they are computed
    x = torch.randint(-4, 5, (NODES, FEATURES), generator=torch.Generator().manual_seed(0)).float()
    edge_index = random_edges(NODES, NODES, 400)
    plain = _results(theirs, x, edge_index, torch.float32)
    with force_mapping(Mapping('vertex', two_pass=two_pass)):
        found = _results(ours, x, edge_index, torch.float32)
    assert ours.note.reason is None
    wide = _results(theirs, x, edge_index, torch.float64)
    largest = max(float(tensor.abs().max()) for key, tensor in wide.items() if key != 'output')
    for key, expected in wide.items():
        scale = float(expected.abs().max())
        floor = max(1e-5 * scale, 1e-6 * largest * (key != 'output'))
        error, their_error = (float((some[key] - expected).abs().max()) for some in (found, plain))
        assert error <= max(2 * their_error, floor), f'{key}: {error:.3g}, {their_error:.3g} in PyG, of {scale:.3g}'
