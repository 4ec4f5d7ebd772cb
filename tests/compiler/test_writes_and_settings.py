"""Messages that write into what PyG gathers for them, by masks too, and layers that hold their settings by name."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch_geometric.utils import scatter

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 6, 11, 50


class InPlace(Own):
    def message(self, x_j, edge_weight):
        x_j *= edge_weight.view(-1, 1)
        x_j += 1
        x_j.mul_(0.5)
        return x_j.tanh()


class SeenByAggregate(Own):
    """What a message has written is what ``aggregate`` is given."""

    def message(self, x_i, x_j):
        x_j *= 2
        return x_j + x_i

    def aggregate(self, inputs, index, x_j, dim_size):
        return super().aggregate(inputs * x_j, index, dim_size=dim_size)


class Masked(Own):
    def message(self, x_i, x_j):
        d = x_j - x_i
        d[d < 0] = 0.5
        d[(x_i.sum(dim=-1) > 0)] = -1
        return torch.where(d > 1, torch.zeros_like(d), d) + torch.ones_like(x_j)


class MaskOfEdges(Own):
    def message(self, x_j, mask):
        y = x_j.clone()
        y[mask] = 0
        return y.view(-1, 2, WIDTH // 2).mT.flatten(1).sigmoid()


class MaskOfRows(Own):
    def message(self, x_j):
        y = x_j.view(-1, 2, WIDTH // 2) * 1
        y[y.sum(dim=-1) > 0] = 1
        return y.flatten(1)


class NumbersOfTypes(Own):
    def message(self, x_j, edge_type):
        return x_j.tanh() * (edge_type == 1).unsqueeze(-1).float() + edge_type.unsqueeze(-1).to(x_j.dtype)


class WideNumbersOfEdges(Own):
    """Integers of edges alone, too many to be computed without chunks."""

    def message(self, x_j, counts):
        return x_j.tanh() + counts.to(x_j.dtype).sqrt().view(-1, 2, WIDTH).sum(dim=1)


class Conditions(Own):
    def message(self, x_i, x_j, mask, edge_type):
        first = torch.where(mask.unsqueeze(-1), x_j.sin(), torch.zeros_like(x_j)) * (edge_type != 2).view(-1, 1)
        second = x_i.masked_fill((edge_type == 0).unsqueeze(-1), 0.25).masked_fill(
            ~mask.unsqueeze(-1) & (x_j > 0), -1.0
        )
        return first + second * torch.where(x_i > x_j, x_i, 1.0)


GIVEN = {
    InPlace: lambda: {'edge_weight': torch.rand(EDGES)},
    SeenByAggregate: dict,
    Masked: dict,
    MaskOfEdges: lambda: {'mask': torch.rand(EDGES) > 0.5},
    MaskOfRows: dict,
    NumbersOfTypes: lambda: {'edge_type': torch.randint(0, 3, (EDGES,))},
    WideNumbersOfEdges: lambda: {'counts': torch.randint(0, 3, (EDGES, 2 * WIDTH))},
    Conditions: lambda: {'mask': torch.rand(EDGES) > 0.5, 'edge_type': torch.randint(0, 3, (EDGES,))},
}


def given(kind) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {'edge_index': random_edges(NODES, NODES, EDGES), 'x': torch.randn(NODES, WIDTH), **GIVEN[kind]()}


@pytest.mark.parametrize('kind', GIVEN)
@pytest.mark.parametrize('aggr', ['sum', 'max'])
def test_outputs_and_gradients_are_those_of_pyg(kind, aggr):
    assert_as_pyg(kind(aggr=aggr), given(kind))


@pytest.mark.parametrize('kind', [NumbersOfTypes, MaskOfEdges, Conditions])
@pytest.mark.usefixtures('at_once')
def test_few_edges(kind):
    assert_as_pyg(kind(), given(kind))


class OfFeatures(Own):
    def message(self, x_j, edge_attr):
        edge_attr *= 2
        return x_j * edge_attr


class OfAView(Own):
    def message(self, x_j):
        rows = x_j.view(-1, 2, WIDTH // 2)
        x_j *= 2
        return rows.flatten(1) + x_j


class OfAnotherType(Own):
    def message(self, x_j):
        x_j *= torch.ones_like(x_j, dtype=torch.float32).double()
        return x_j


class OfDetached(Own):
    def message(self, x_j):
        y = x_j.detach()
        x_j *= 2
        return x_j * y


class OfContiguous(Own):
    def message(self, x_i, x_j):
        d = x_i - x_j
        y = d.contiguous()
        y += 1
        return d * d


class WithoutGradients(Own):
    def message(self, x_j):
        with torch.no_grad():
            x_j *= 2
        return x_j.sin()


class OfAGivenMask(Own):
    def message(self, x_i, x_j, mask):
        mask &= x_i[:, 0] > 0
        return x_j.masked_fill(mask.unsqueeze(-1), 0.0)


class OfACopy(Own):
    def message(self, x_i, x_j):
        y = x_j.to(x_i.dtype, copy=True)
        y *= 2
        return x_j * y


class ByRows(Own):
    def message(self, x_j):
        x_j[:, 0] = 0
        return x_j


class ByValues(Own):
    def message(self, x_i, x_j):
        x_j[x_j > 0] = x_i[x_j > 0]
        return x_j


@pytest.mark.parametrize(
    ('kind', 'reason'),
    [
        (OfFeatures, 'it writes into a tensor that something else may share'),
        (OfAView, 'it reads a tensor after a write to another one that may share its memory'),
        (OfAGivenMask, 'it writes into a tensor that something else may share'),
        (OfACopy, 'a copy of another type perhaps'),
        (OfDetached, 'it reads a tensor after a write to another one that may share its memory'),
        (OfContiguous, 'it reads a tensor after a write to another one that may share its memory'),
        (WithoutGradients, 'it writes into a tensor without gradients'),
        (OfAnotherType, 'a conversion to another type'),
        (ByRows, 'it writes into a tensor'),
        (ByValues, 'an index by values'),
    ],
)
def test_other_writes_are_left_to_pyg(kind, reason):
    conv, x = kind(), torch.randn(NODES, WIDTH, requires_grad=True)
    tensors, found = {'edge_index': random_edges(NODES, NODES, EDGES), 'x': x}, []
    if kind is OfFeatures:
        tensors['edge_attr'] = torch.randn(EDGES, WIDTH)
    if kind is OfAGivenMask:
        tensors['mask'] = torch.rand(EDGES) > 0.5
    fused = pygfuse.compile(copy.deepcopy(conv))
    for layer in (fused, conv):
        out = layer(**{name: tensor.clone() for name, tensor in tensors.items()})
        found.append((out, *torch.autograd.grad(out.square().sum(), x)))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want)
    assert fused.note.reason == reason


# An argument of ``aggregate`` that PyG never passes


class NamedAggr(Own):
    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j

    def aggregate(self, inputs, index, dim_size=None, aggr='sum'):
        return scatter(inputs, index, 0, dim_size, reduce=aggr)


@pytest.mark.parametrize('aggr', ['mean', 'max'])
def test_aggr_is_not_passed_on(aggr):
    conv, tensors = NamedAggr(), {**given(SeenByAggregate), 'norm': torch.rand(EDGES)}
    fused = pygfuse.compile(copy.deepcopy(conv))
    for _ in range(3):
        torch.testing.assert_close(fused(**tensors, aggr=aggr), conv(**tensors, aggr=aggr))
    assert fused.note.reason is None


class OfNumpy(Own):
    """Numbers of NumPy's, which layers hold that compute their settings with it."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def message(self, x_j):
        return self.number * x_j.clamp(min=-self.number, max=self.number) / np.sqrt(WIDTH)


@pytest.mark.parametrize('kind', [np.float64, np.float32, np.int64])
def test_numbers_of_numpy_are_numbers(kind):
    torch.manual_seed(0)
    layer = OfNumpy(kind(1))
    fused = pygfuse.compile(copy.deepcopy(layer))
    x, edge_index = torch.randn(NODES, WIDTH), random_edges(NODES, NODES, EDGES)
    for number in (kind(1), kind(2), kind(1)):
        layer.number = fused.number = number
        torch.testing.assert_close(fused(edge_index, x=x), layer(edge_index, x=x))
        assert fused.note.reason is None
    assert len(fused.plans()) == 2
