"""Values that are stacked before the dimension of edges, to be reduced at once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Embedding, Linear

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS

WIDTH = 8


def written_later(first, second, third):
    first = first + 0
    pile = torch.stack([first, second, third])
    first += 1
    return pile.sum(0) * first


def written_to(pile):
    pile *= 2
    pile.clamp_(min=-1).add_(0.5)
    return pile.sum(0) + pile[1]


REDUCED = {
    'sum': lambda parts: torch.stack(parts).sum(dim=0),
    'sum of the first': lambda parts: torch.sum(torch.stack(parts, dim=0), 0),
    'sum of several': lambda parts: torch.stack([part.relu() for part in parts]).sum((0,)),
    'product': lambda parts: torch.prod(torch.stack(parts), 0),
    'mean': lambda parts: torch.mean(torch.stack(parts, -3), dim=-3),
    'every number': lambda parts: torch.stack(parts).sum() * parts[0],
    'another dimension': lambda parts: torch.stack(parts).sum(dim=-1).sum(0).unsqueeze(-1),
    'an extreme': lambda parts: torch.amax(torch.stack(parts), dim=0),
    'some parts': lambda parts: torch.stack(parts)[:2].sum(0),
    # of the others the gradient is zero, and not missing
    'a part': lambda parts: torch.stack(parts)[1],
    'all parts': lambda parts: sum(torch.stack(parts)),
    'a part that is written to later': lambda parts: written_later(*parts),
    'a tensor that is written to': lambda parts: written_to(torch.stack(parts)),
    'a comparison': lambda parts: torch.where(torch.stack(parts) > 0, -torch.stack(parts), 0.1).sum(0),
    'an extreme with its place': lambda parts: torch.stack(parts).max(dim=0).values,
    'beside others': lambda parts: (parts[0] * torch.stack(parts) - torch.stack(parts).transpose(1, 2).mT).sum(0),
    'arithmetic': lambda parts: (2.0 * torch.stack(parts) + torch.stack(parts) * parts[0]).transpose(0, 1)[:, 1],
    'a mean over another dimension': lambda parts: (
        torch.stack(parts).mean(-1, keepdim=True).permute(1, 0, 2).flatten(1)
    ),
    'parts of what each has': lambda parts: sum(torch.stack(parts).sigmoid().unbind(-1)).t(),
}
REFUSED = {
    'its dimension kept': lambda parts: parts[0] * torch.stack(parts).sum(0, keepdim=True).flatten(1).sum(-1, True),
}


def made(function):
    class Embedded(Own):
        """Embeddings of several properties of edges and of their ends."""

        def __init__(self):
            super().__init__()
            self.lin, self.of_edges = Linear(3, WIDTH), Embedding(5, WIDTH)

        def message(self, x_i, x_j, edge_attr, edge_type):
            return function([self.lin(edge_attr), self.of_edges(edge_type), x_i * x_j]).tanh()

    return Embedded()


def given(graph: str = 'random') -> dict[str, torch.Tensor]:
    example = GRAPHS[graph]()
    num_edges = example.edge_index.shape[1]
    of_edges = {'edge_attr': torch.randn(num_edges, 3), 'edge_type': torch.randint(5, (num_edges,))}
    return {'edge_index': example.edge_index, 'x': torch.randn(example.num_targets, WIDTH), **of_edges}


@pytest.mark.parametrize('name', REDUCED)
def test_outputs_and_gradients_are_those_of_pyg(name):
    torch.manual_seed(0)
    assert_as_pyg(made(REDUCED[name]), given())


def test_parts_of_different_shapes_are_no_pile():
    conv, arguments = made(lambda parts: torch.stack([parts[0], parts[1][:, :1]]).sum(0)), given()
    with pytest.raises(RuntimeError, match='equal size'):
        pygfuse.compile(conv)(**arguments)


@pytest.mark.parametrize('name', REFUSED)
def test_what_is_refused(name):
    conv, arguments = made(REFUSED[name]), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is not None
