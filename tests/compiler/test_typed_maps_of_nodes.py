"""Products by a matrix of each node's group, which each edge reads at one of its ends: no types of edges."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Module

import pygfuse
from tests.support.parity import random_edges

NODES, EDGES, GROUPS, DIM = 30, 200, 4, 3


class Offsets(Module):
    """Lengths of edges across the borders of periodic cells, of which each graph of a batch has its own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, position, edge_index, shift, cell, batch):
        source, target = edge_index
        if self.kind == 'of targets':
            offset = torch.einsum('ea,eab->eb', shift, cell[batch[target]])
        elif self.kind == 'of sources':
            offset = torch.einsum('eb,eab->ea', shift, cell[batch[source]])
        elif self.kind == 'of one end and another':
            offset = torch.einsum('ea,eab->eb', position[source], cell[batch[target]])
        elif self.kind == 'of one end':
            offset = torch.einsum('ea,eab->eb', position[target], cell[batch[target]])
        else:
            offset = torch.einsum('na,nab->nb', position, cell[batch])[target] * shift
        moved = torch.tanh(position[source] - position[target] + offset)
        return torch.zeros_like(position).index_add_(0, target, moved)


@pytest.mark.parametrize('kind', ['of targets', 'of sources', 'of one end and another', 'of one end', 'of nodes'])
def test_numbers_are_those_of_its_own_code(kind):
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    position, shift, cell = drawn(NODES, DIM), drawn(EDGES, DIM), drawn(GROUPS, DIM, DIM)
    batch = torch.arange(NODES) * GROUPS // NODES
    found = []
    own = Offsets(kind)
    for module in (own, pygfuse.compile(copy.deepcopy(own))):
        out = module(position, random_edges(NODES, NODES, EDGES), shift, cell, batch)
        gradients = torch.autograd.grad(out.sin().sum(), (position, shift, cell), allow_unused=True)
        found.append((out, *[gradient for gradient in gradients if gradient is not None]))
    torch.testing.assert_close(*found)
