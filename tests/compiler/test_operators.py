"""Operators of torch within a message, in the forms that people write: PyG's numbers, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing

import pygfuse

FUSED: dict[str, Callable] = {
    'narrow from the end': lambda x_j: x_j.narrow(1, -2, 2).sum(-1, keepdim=True) * x_j,
    'sum': lambda x_j: x_j.sum(-1, keepdim=True, dtype=torch.float32) * x_j,
    'softmax': lambda x_j: F.softmax(x_j, dim=-1, dtype=torch.float32),
    'method softmax': lambda x_j: x_j.softmax(-1),
    "names of NumPy's": lambda x_j: torch.cat([x_j, x_j.sum(axis=-1, keepdims=True)], axis=-1),
    "a stack by names of NumPy's": lambda x_j: torch.stack([x_j, x_j.sin()], axis=-1).mean(axis=-1),
    'names of first arguments': lambda x_j: torch.relu(
        input=torch.mul(input=x_j, other=torch.sum(input=x_j, dim=1)[:, None])
    ),
    'names of a choice': lambda x_j: torch.where(condition=x_j > 0, input=x_j, other=torch.pow(input=x_j, exponent=2)),
    'names of tensors': lambda x_j: torch.cat(tensors=[x_j, torch.clamp(input=x_j, max=0.0)], dim=-1),
    'a norm of linalg': lambda x_j: (
        torch.linalg.norm(x_j, dim=-1, keepdim=True) * torch.linalg.norm(x_j, 1, -1)[:, None]
    ),
    'distances': lambda x_j: F.pairwise_distance(x_j, x_j.sin(), keepdim=True) * x_j,
    'the kind of its device': lambda x_j: x_j.sin() if x_j.device.type == 'cpu' and not x_j.is_cuda else x_j,
    'log_softmax': lambda x_j: F.log_softmax(x_j, -1),
    'norm': lambda x_j: x_j.norm(dim=-1, keepdim=True) * x_j,
    'cosine similarity': lambda x_j: x_j * F.cosine_similarity(x_j, x_j.abs(), dim=-1)[:, None],
    'chunk': lambda x_j: x_j.chunk(4, -1)[0] + x_j.chunk(4, -1)[2],
    'uneven split': lambda x_j: x_j.split(4, -1)[1].sum(-1, keepdim=True) * x_j,
    'last column': lambda x_j: x_j[:, -1:] * x_j,
    'every second column': lambda x_j: x_j[:, ::2],
    'amax': lambda x_j: x_j.amax(-1, keepdim=True) * x_j,
    'layer_norm': lambda x_j: F.layer_norm(x_j, (6,)),
    'einsum': lambda x_j: torch.einsum('ec,ec->e', x_j, x_j).unsqueeze(-1),
    'add with alpha': lambda x_j: torch.add(x_j, x_j, alpha=0.5),
    'masked_fill': lambda x_j: x_j.masked_fill(x_j > 0, 0.0),
    'softplus': lambda x_j: F.softplus(x_j, beta=2.0, threshold=1.0),
    'gelu': lambda x_j: F.gelu(x_j),
    'type of another': lambda x_j: x_j.type_as(x_j.sin()) * x_j.abs().to(x_j),
    'write in place': lambda x_j: x_j.mul_(2),
    'zeros and ones': lambda x_j: torch.maximum(x_j, torch.zeros_like(x_j)) * torch.ones_like(x_j, dtype=x_j.dtype),
    'truth values': lambda x_j: torch.where(~(x_j > 0.5) & (x_j > -0.5) | (x_j < -1), x_j, 2.0),
}
REFUSED: dict[str, Callable] = {
    'sum of another type': lambda x_j: x_j.sum(-1, keepdim=True, dtype=torch.float64),
    'dropout of whole channels': lambda x_j: torch.feature_dropout(x_j.view(-1, 2, 3), 0.0, True).flatten(1),
    'mean of another type': lambda x_j: x_j.mean(-1, keepdim=True, dtype=torch.float64),
    'softmax of another type': lambda x_j: F.softmax(x_j, dim=-1, dtype=torch.float64),
    'method softmax of another type': lambda x_j: x_j.softmax(-1, torch.float64),
    'norm of another type': lambda x_j: x_j.norm(dim=-1, keepdim=True, dtype=torch.float64),
    'an index by a bool': lambda x_j: x_j[:, True].flatten(1),
    'cosine similarity of other rows': lambda x_j: F.cosine_similarity(x_j, x_j[:, :1]).unsqueeze(-1),
    'zeros of another type': lambda x_j: x_j * torch.zeros_like(x_j, dtype=torch.float64).to(x_j.dtype),
    'truth of numbers': lambda x_j: torch.where(torch.logical_not(x_j), x_j, 2.0),
    'a norm of matrices': lambda x_j: torch.linalg.norm(x_j.view(-1, 2, 3), dim=(1, 2))[:, None] * x_j,
    'sort': lambda x_j: x_j.sort(-1)[0],
    'rounded division': lambda x_j: torch.div(x_j, 2, rounding_mode='floor'),
}


def results(function: Callable, fused: bool) -> tuple[list[torch.Tensor], MessagePassing]:
    class Layer(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j):
            return function(x_j)

    torch.manual_seed(0)
    conv = Layer(aggr='sum')
    conv = pygfuse.compile(conv) if fused else conv
    x = torch.randn(10, 6, requires_grad=True)
    out = conv(x, torch.randint(10, (2, 40)))
    out.double().sin().sum().backward()
    return [out, x.grad], conv


@pytest.mark.parametrize('name', [*FUSED, *REFUSED])
def test_operators(name):
    function = (FUSED | REFUSED)[name]
    expected, _ = results(function, False)
    with pygfuse.ablation(fusion=False):
        found, conv = results(function, True)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert (conv.note.reason is None) == (name in FUSED), conv.note.reason


@pytest.mark.parametrize('scale', [1.0, 1e-9, 0.0])
def test_the_cosine_of_short_rows(scale):
    """Rows no longer than torch's least length have its value and its derivative."""

    class Cosine(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_i, x_j):
            return x_j * F.cosine_similarity(x_i, x_j, dim=-1).unsqueeze(-1)

    torch.manual_seed(0)
    x, edge_index = torch.randn(10, 6, dtype=torch.float64), torch.randint(10, (2, 40))
    x[:5] *= scale
    found = []
    for conv in (Cosine(), pygfuse.compile(Cosine())):
        leaf = x.clone().requires_grad_()
        out = conv(leaf, edge_index)
        found.append((out, *torch.autograd.grad(out.sin().sum(), leaf)))
    assert conv.note.reason is None
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(wanted, got)
