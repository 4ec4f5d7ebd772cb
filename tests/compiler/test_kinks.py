"""Derivatives where functions have a kink, beyond all numbers, and of what is none: those of torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing

import pygfuse

VALUES = torch.tensor(
    [
        -7.0,
        -6.0,
        -3.0,
        -1.0,
        -0.5,
        -0.0,
        0.0,
        0.5,
        1.0,
        2.0,
        3.0,
        6.0,
        7.0,
        20.0,
        25.0,
        float('inf'),
        float('-inf'),
        float('nan'),
    ],
    dtype=torch.float64,
)
FUNCTIONS = {
    'relu': torch.relu,
    'relu6': F.relu6,
    'hardtanh': F.hardtanh,
    'hardtanh of a range': lambda x: F.hardtanh(x, -0.5, 2.0),
    'leaky_relu': F.leaky_relu,
    'elu': F.elu,
    'selu': F.selu,
    'celu': F.celu,
    'abs': torch.abs,
    'clamp': lambda x: x.clamp(-1.0, 2.0),
    'clamp from below': lambda x: x.clamp(min=0.5),
    'maximum': lambda x: torch.maximum(x, torch.zeros_like(x)),
    'minimum': lambda x: torch.minimum(x, torch.ones_like(x)),
    'softplus': F.softplus,
    'hardsigmoid': F.hardsigmoid,
    'hardswish': F.hardswish,
    'softshrink': F.softshrink,
    'hardshrink': F.hardshrink,
    'threshold': lambda x: F.threshold(x, 0.5, -1.0),
    'softsign': F.softsign,
    'sign': lambda x: torch.sign(x) * x,
    'where': lambda x: torch.where(x > 0.5, x, 2.0 * x),
}


def own(name: str) -> MessagePassing:
    """A layer whose message is the function of a node's and an edge's sum: no node has it alone."""
    function = FUNCTIONS[name]

    class Own(MessagePassing):
        def forward(self, x, edge_index, edge_attr):
            return self.propagate(edge_index, x=x, edge_attr=edge_attr)

        def message(self, x_j, edge_attr):
            return function(x_j + edge_attr)

    return Own()


@pytest.mark.parametrize('name', FUNCTIONS)
def test_values_and_derivatives_are_those_of_torch(name):
    edge_attr = VALUES.unsqueeze(1).repeat(1, 2).requires_grad_()
    x = torch.zeros_like(edge_attr).requires_grad_()
    edge_index = torch.arange(len(VALUES)).repeat(2, 1)
    layer, found = own(name), []
    for conv in (layer, pygfuse.compile(own(name))):
        out = conv(x, edge_index, edge_attr)
        # of what is no number a derivative is any
        found.append((out.detach(), *[one[:-1] for one in torch.autograd.grad(out.sum(), (x, edge_attr))]))
    assert conv.note.reason is None
    torch.testing.assert_close(found[1], found[0], equal_nan=True)
