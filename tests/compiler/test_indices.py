"""Values that are indexed: by lists, which are the places of one dimension, by arrays, and behind a transposition."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import pygfuse

NODES = 40


class Indexed(torch.nn.Module):
    """A sum of neighbours, and what a function takes out of it, of a parameter and of numbers that the layer holds."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.arange(16.0).view(4, 4))
        self.register_buffer('places', torch.tensor([2, 0]))
        self.register_buffer('table', torch.tensor([[2, 0], [1, 1], [0, 3]]))

    def forward(self, x, edge_index):
        out = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * x[edge_index[1]])
        return out, self.function(self, out, x, edge_index)


def _lists(self, out, x, edges):
    return (
        out[[0, 1]],
        x[[-1]],
        self.weight[[0, 2]],
        self.weight[:, [0, 2]],
        out[:, [0, 1]],
        out[[0, 1], [1, 2]],
        out[[]],
    )


def _arrays(self, out, x, edges):
    first = np.array([1, 0])
    return out[first], out[:, first], self.weight[first], out[np.array([[0, 1], [1, 2]])], out.t()[first]


def _rows_of_edges(self, out, x, edges):
    return out[edges[[1, 0]][0]], out[edges[[1, 0]]]


def _stacked(self, out, x, edges):
    return torch.stack([out, x])[[1, 0]], torch.stack([out, x])[[1]][0], torch.stack([out, x], 1)[:, [1, 0]].flatten(1)


def _transposed(self, out, x, edges):
    turned = out.t()
    return (
        turned[:, ::2], turned[:, 1:], turned[1:, 5], turned[[1, 0], 3:], turned[self.places], turned[:, self.places],
        turned[:, edges[0]], turned[1], turned[1, 2:], turned[..., [5, 3]], turned[None, :, 1:], turned[self.table],
    )  # fmt: skip


def _heads_first(self, out, x, edges):
    heads = out.view(-1, 2, 2).transpose(0, 1)
    last = out.view(-1, 2, 2).permute(1, 2, 0)
    return (
        heads[:, 1:], heads[[1, 0]], heads[0, 1:], heads[:, 1:, 0], heads[:, -1], last[..., ::2], last[[1], :, 3:],
        last[:, [1], 3:], last[1, [1], 3:],
    )  # fmt: skip


FUNCTIONS = [_lists, _arrays, _rows_of_edges, _stacked, _transposed, _heads_first]


def results(module, function):
    torch.manual_seed(0)
    x, edge_index = torch.randn(NODES, 4, requires_grad=True), torch.randint(NODES, (2, 6_000))
    out, found = module(x, edge_index)
    total = sum(one.square().sum() for one in (out, *found))
    return found, torch.autograd.grad(total, [x, module.weight], allow_unused=True)


@pytest.mark.parametrize('function', FUNCTIONS)
def test_indices_are_those_of_torch(function):
    own = Indexed(function)
    compiled = pygfuse.compile(copy.deepcopy(own))
    torch.testing.assert_close(results(compiled, function), results(own, function), rtol=1e-4, atol=1e-4)
    assert compiled.note.reason is None


def test_lists_of_lists_are_left_to_torch():
    """Which takes some for tuples."""
    own = Indexed(lambda self, out, x, edges: (out[[[0, 1], [1, 2]]],))
    compiled = pygfuse.compile(copy.deepcopy(own))
    torch.testing.assert_close(results(compiled, None), results(own, None), rtol=1e-4, atol=1e-4)
    assert compiled.note.reason == 'an index by a list of lists or values'
