"""Arguments of `propagate` that are tuples or lists: scalars and vectors of edges, as of equivariant layers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.support.parity import random_edges

NODES, EDGES, SCALARS, VECTORS = 20, 90, 6, 3


class Perceptron(MessagePassing):
    """A geometric vector perceptron: norms of vectors enter the scalars, which gate the vectors."""

    def __init__(self):
        super().__init__(aggr='mean')
        self.mix, self.norms = nn.Linear(2 * VECTORS + 1, VECTORS, bias=False), nn.Linear(VECTORS, VECTORS)
        self.scalars, self.gate = nn.Linear(2 * SCALARS + 2 + VECTORS, SCALARS), nn.Linear(SCALARS, VECTORS)

    def forward(self, x, edge_index, edge_attr):
        s, v = x
        out = self.propagate(edge_index, s=s, v=v.flatten(1), edge_attr=edge_attr)
        return out[:, :SCALARS], out[:, SCALARS:].unflatten(1, (VECTORS, 3))

    def message(self, s_i, s_j, v_i, v_j, edge_attr):
        scalars, vectors = edge_attr
        v = torch.cat([v_j.view(-1, VECTORS, 3), vectors, v_i.view(-1, VECTORS, 3)], dim=1)
        v = self.mix(v.transpose(1, 2)).transpose(1, 2)
        norms = self.norms(v.square().sum(dim=-1).clamp(min=1e-8).sqrt())
        s = self.scalars(torch.cat([s_j, scalars, s_i, norms], dim=-1)).relu()
        return torch.cat([s, (v * self.gate(s).sigmoid().unsqueeze(-1)).flatten(1)], dim=-1)


class Weighed(MessagePassing):
    """A list of factors, one of which is the same for all edges, and one a number."""

    def forward(self, x, edge_index, factors):
        return self.propagate(edge_index, x=x, factors=factors)

    def message(self, x_j, factors):
        for factor in factors:
            x_j = x_j * factor
        return x_j


class Appending(Weighed):
    def message(self, x_j, factors):
        factors.append(2.0)
        return super().message(x_j, factors)


def features():
    return {'x': (torch.randn(NODES, SCALARS), torch.randn(NODES, VECTORS, 3))}


def edges(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        'edge_index': random_edges(NODES, NODES, EDGES),
        'edge_attr': (torch.randn(EDGES, 2, generator=generator), torch.randn(EDGES, 1, 3, generator=generator)),
    }


def factors(kind=tuple):
    return kind([torch.rand(EDGES, 1), torch.rand(SCALARS), 0.5])


def test_scalars_and_vectors_of_edges():
    torch.manual_seed(0)
    conv = Perceptron()
    assert_as_pyg(conv, {**features(), **edges()})
    assert conv.note.reason is None


def test_each_call_has_its_own():
    torch.manual_seed(0)
    conv = Perceptron()
    compiled = pygfuse.compile(copy.deepcopy(conv))
    for seed in range(3):
        given = {**features(), **edges(seed)}
        torch.testing.assert_close(compiled(**given), conv(**given))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


@pytest.mark.parametrize('kind', [tuple, list])
def test_tensors_and_numbers(kind):
    torch.manual_seed(0)
    conv, given = Weighed(), {'x': torch.randn(NODES, SCALARS), 'edge_index': random_edges(NODES, NODES, EDGES)}
    compiled = pygfuse.compile(copy.deepcopy(conv))
    for one in (factors(kind), factors(kind)[:2], factors(kind)[::-1]):
        torch.testing.assert_close(compiled(**given, factors=one), conv(**given, factors=one))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 3


def test_a_list_that_is_written_into():
    torch.manual_seed(0)
    conv, given = Appending(), {'x': torch.randn(NODES, SCALARS), 'edge_index': random_edges(NODES, NODES, EDGES)}
    compiled, theirs, ours = pygfuse.compile(copy.deepcopy(conv)), factors(list)[1:], factors(list)[1:]
    ours[0] = theirs[0]
    torch.testing.assert_close(compiled(**given, factors=ours), conv(**given, factors=theirs))
    assert len(ours) == len(theirs) == 3
    assert 'it writes into factors' in compiled.note.reason


def test_traces_of_them():
    torch._dynamo.reset()
    torch.manual_seed(0)
    conv, given = Perceptron(), {**features(), **edges()}
    compiled = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='aot_eager')
    torch.testing.assert_close(compiled(**given), conv(**given))
