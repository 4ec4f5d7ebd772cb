"""Numbers of edges and nodes that code reads as numbers: what stands for them is none."""

from __future__ import annotations

import copy
import math
from math import log

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, Parameter
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.conv.modules.arguments import assert_same

WIDTH = 8


class Sum(Module):
    """A sum of neighbours, of which subclasses say what is summed."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.wide = Linear(WIDTH, WIDTH), Linear(WIDTH, 64)
        self.table = Parameter(torch.randn(64, WIDTH))

    def of_nodes(self, x: Tensor, edge_index: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add_(0, col, self.of_nodes(self.lin(x), edge_index)[row])


class Logarithm(Sum):
    def of_nodes(self, x, edge_index):
        return x * math.log(x.shape[0])


class LogarithmOfEdges(Sum):
    def of_nodes(self, x, edge_index):
        return x * log(edge_index.shape[1])


class OfNumpy(Sum):
    def of_nodes(self, x, edge_index):
        return x * float(np.sqrt(x.shape[0]))


class Imported(Sum):
    def of_nodes(self, x, edge_index):
        import math as numbers

        return x * numbers.log2(x.shape[0])


class Integer(Sum):
    def of_nodes(self, x, edge_index):
        return x / int(x.size(0))


class Ranged(Sum):
    def of_nodes(self, x, edge_index):
        return x * torch.tensor([float(k % 3) for k in range(x.shape[0])]).unsqueeze(1).to(x.dtype)


class Text(Sum):
    def of_nodes(self, x, edge_index):
        return x * len(str(x.shape[0]))


class Formatted(Sum):
    def of_nodes(self, x, edge_index):
        return x * len(f'{edge_index.shape[1]}')


class Key(Sum):
    def of_nodes(self, x, edge_index):
        return x * {20: 2.0}.get(x.shape[0], 3.0)


class Bits(Sum):
    def of_nodes(self, x, edge_index):
        return x * x.shape[0].bit_length()


class Column(Sum):
    def of_nodes(self, x, edge_index):
        return x * self.wide(x)[:, : x.shape[0]].sum(1, keepdim=True)


class ColumnOfEdges(Sum):
    def of_nodes(self, x, edge_index):
        return x * self.wide(x)[:, : edge_index.shape[1]].sum(1, keepdim=True)


class FirstRows(Sum):
    def of_nodes(self, x, edge_index):
        return x + self.table[: x.shape[0]]


class OneRow(Sum):
    def of_nodes(self, x, edge_index):
        return x * self.table[: x.shape[0]].sum(0)


class Expanded(Sum):
    def of_nodes(self, x, edge_index):
        return x * x.unsqueeze(1).expand(-1, x.shape[0], -1).sum(1)


class ExpandedToEdges(Sum):
    def of_nodes(self, x, edge_index):
        return x * x.unsqueeze(1).expand(-1, edge_index.shape[1], -1).sum(1)


class Repeated(Sum):
    def of_nodes(self, x, edge_index):
        return x * x.repeat(1, edge_index.shape[1]).sum(1, keepdim=True)


class Padded(Sum):
    def of_nodes(self, x, edge_index):
        return x * F.pad(x, (0, edge_index.shape[1]), value=1.0).sum(1, keepdim=True)


class Largest(Sum):
    def of_nodes(self, x, edge_index):
        return x * self.wide(x).topk(x.shape[0], dim=1).values.sum(1, keepdim=True)


class Clamped(Sum):
    def of_nodes(self, x, edge_index):
        return (100 * x).clamp(max=x.shape[0])


def arguments(num_edges: int = 30) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, WIDTH, generator=generator)
    return {'x': x, 'edge_index': torch.randint(20, (2, num_edges), generator=generator)}


@pytest.mark.parametrize('kind', Sum.__subclasses__())
def test_numbers_are_those_of_the_call(kind):
    torch.manual_seed(0)
    module = kind()
    if kind is Integer:
        assert_same(module, arguments())
        return
    compiled = pygfuse.compile(copy.deepcopy(module))
    for num_edges in (30, 45):
        given = arguments(num_edges)
        torch.testing.assert_close(compiled(**given), module(**given))
    assert compiled.note.reason is not None


class OfMessages(MessagePassing):
    """Messages over the logarithm of the number of targets."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j, size_i):
        return x_j / math.log(size_i)


def test_numbers_of_messages():
    given = arguments()
    layer = OfMessages()
    expected = layer(**given)
    torch.testing.assert_close(pygfuse.compile(layer)(**given), expected)
