"""einops' functions and layers, and ``opt_einsum.contract``, within messages and modules."""

from __future__ import annotations

import copy

import einops
import opt_einsum
import pytest
import torch
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from torch import Tensor
from torch.nn import Linear, Module, Parameter, ReLU, Sequential
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.support.parity import random_edges

NODES, EDGES, HEADS, WIDTH = 12, 60, 4, 16


class Attention(MessagePassing):
    """With functions of libraries in place of views and ``einsum``.

    Args:
        name: Which ones, of `MESSAGES`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(aggr='add', node_dim=0)
        self.query, self.key, self.name = Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH), name
        self.matrices = Parameter(torch.randn(HEADS, WIDTH // HEADS, 1))
        spread = Sequential(Linear(2 * WIDTH, 2 * WIDTH), ReLU(), Rearrange('e (h d) -> e h d', h=HEADS))
        self.network = Sequential(*spread, Linear(8, 8), Reduce('e h d -> e (h 1)', 'mean'), Linear(HEADS, WIDTH))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, query=self.query(x), key=self.key(x))

    def message(self, query_i: Tensor, key_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        return MESSAGES[self.name](self, query_i, key_j, index, size_i)


def _by_views(layer, query_i, key_j, index, size_i):
    query, key = (rearrange(x, 'e (h d) -> e h d', h=HEADS) for x in (query_i, key_j))
    weights = softmax(reduce(query * key, 'e h d -> e h', 'sum'), index, num_nodes=size_i)
    return rearrange(rearrange(weights, 'e h -> e h ()') * key, 'e h d -> e (h d)')


def _by_equations(layer, query_i, key_j, index, size_i):
    query, key = (rearrange(x, 'e (heads d) -> e heads d', heads=HEADS) for x in (query_i, key_j))
    weights = softmax(einops.einsum(query, key, 'e heads d, e heads d -> e heads'), index, num_nodes=size_i)
    return rearrange(repeat(weights, 'e h -> e h d', d=WIDTH // HEADS) * key, 'e h d -> e (h d)')


def _by_contraction(layer, query_i, key_j, index, size_i):
    scores = (query_i + key_j).view(-1, HEADS, WIDTH // HEADS).relu()
    scores = opt_einsum.contract('ehd, dhc->ehc', scores, layer.matrices.mT.transpose(0, 2), backend='torch')
    return (softmax(scores, index, num_nodes=size_i) * key_j.view(-1, HEADS, WIDTH // HEADS)).reshape(-1, WIDTH)


def _of_pairs(layer, query_i, key_j, index, size_i):
    scores = opt_einsum.contract('ehd,ehd->eh', query_i.view(-1, HEADS, 4), key_j.view(-1, HEADS, 4))
    return rearrange(scores[..., None] * key_j.view(-1, HEADS, 4), 'e h d -> e (d h)')


def _side_by_side(layer, query_i, key_j, index, size_i):
    return rearrange([query_i, key_j], 'two e c -> e (c two)')


def _extreme(layer, query_i, key_j, index, size_i):
    turned = rearrange(query_i, 'e (h d) -> e (d h)', h=HEADS)
    return turned * key_j + repeat(reduce(key_j, 'e (h d) -> e 1 d', 'max', h=HEADS), 'e 1 d -> e (k d)', k=HEADS)


def _of_layers(layer, query_i, key_j, index, size_i):
    return layer.network(torch.cat([query_i, key_j], dim=-1))


def _over_all_edges(layer, query_i, key_j, index, size_i):
    return query_i * reduce(key_j, 'e d -> d', 'mean')


MESSAGES = {
    'views': _by_views,
    'equations': _by_equations,
    'contraction': _by_contraction,
    'contraction of pairs': _of_pairs,
    'side by side': _side_by_side,
    'extreme': _extreme,
    'layers': _of_layers,
    'over all edges': _over_all_edges,
}


def given() -> dict[str, Tensor]:
    return {'x': torch.randn(NODES, WIDTH), 'edge_index': random_edges(NODES, NODES, EDGES)}


@pytest.mark.parametrize('name', MESSAGES)
def test_messages(name):
    torch.manual_seed(0)
    assert_as_pyg(Attention(name), given())


class Gathering(Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        row, col = edge_index
        query, key = (rearrange(of(x), 'n (h d) -> n h d', h=HEADS) for of in (self.query, self.key))
        scores = einops.einsum(query[col], key[row], 'e h d, e h d -> e h')
        weights = softmax(scores, col, num_nodes=x.size(0))
        out = torch.zeros_like(key).index_add(0, col, rearrange(weights, 'e h -> e h 1') * key[row])
        return rearrange(out, 'n h d -> n (h d)')


def test_modules():
    torch.manual_seed(0)
    assert_as_pyg(Gathering(), given())


class Turned(Attention):
    def message(self, query_i, key_j):
        return rearrange(torch.tanh(rearrange(query_i * key_j, 'e d -> d e')), 'd e -> e d')


def test_the_dimension_of_edges_may_move():
    torch.manual_seed(0)
    assert_as_pyg(Turned(''), given())


REFUSED = {
    'edges are taken in pairs': lambda x: rearrange(
        rearrange(x, '(e two) d -> e two d', two=2), 'e two d -> (e two) d'
    ),
    'any number of axes': lambda x: rearrange(x, 'e ... -> e ...'),
    'products': lambda x: x * reduce(x, 'e d -> e 1', 'prod'),
}


class Of(Attention):
    def message(self, query_i, key_j):
        return REFUSED[self.name](query_i * key_j)


@pytest.mark.parametrize('name', REFUSED)
def test_what_else_they_do_runs_as_it_is(name):
    torch.manual_seed(0)
    conv, tensors = Of(name), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**tensors), conv(**tensors))
    assert fused.note.reason is not None
