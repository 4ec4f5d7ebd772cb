"""What a network gives to several reductions is computed once, and kept."""

from __future__ import annotations

import pytest
import torch
from torch.nn import LayerNorm, Linear, ReLU, Sequential, SiLU
from torch_geometric.utils import scatter

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, random_edges

WIDTH, HIDDEN = 8, 12


class Moved(Own):
    """A message of features, and one of coordinates by another network on it."""

    def __init__(self):
        super().__init__()
        self.edges = Sequential(
            *(Linear(2 * WIDTH + 1, HIDDEN), LayerNorm(HIDDEN), ReLU(), Linear(HIDDEN, HIDDEN), SiLU())
        )
        self.moves = Sequential(Linear(HIDDEN, HIDDEN), SiLU(), Linear(HIDDEN, 1))

    def message(self, x_i, x_j, pos_i, pos_j):
        between = pos_i - pos_j
        message = self.edges(torch.cat([x_i, x_j, between.norm(dim=-1, keepdim=True)], dim=-1))
        return message, between * self.moves(message)

    def aggregate(self, inputs, index, dim_size=None):
        message, moves = inputs
        return scatter(message, index, 0, dim_size, 'sum'), scatter(moves, index, 0, dim_size, 'mean')

    def update(self, inputs):
        return torch.cat(inputs, dim=-1)


class Several(Own):
    """Three reductions of one network's messages."""

    def __init__(self):
        super().__init__()
        self.nn = Sequential(Linear(2 * WIDTH, HIDDEN), SiLU(), Linear(HIDDEN, HIDDEN))

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j], dim=-1))

    def aggregate(self, inputs, index, dim_size=None):
        return tuple([scatter(inputs, index, 0, dim_size, how) for how in ('sum', 'mean', 'max')])

    def update(self, inputs):
        return torch.cat(inputs, dim=-1)


def given(kind: type, graph: str | None = None, num_edges: int = 0) -> dict[str, torch.Tensor]:
    example = None if graph is None else GRAPHS[graph]()
    edge_index = random_edges(60, 60, num_edges) if example is None else example.edge_index
    num_nodes = 60 if example is None else example.num_targets
    found = {'edge_index': edge_index, 'x': torch.randn(num_nodes, WIDTH)}
    return {**found, 'pos': torch.randn(num_nodes, 3)} if kind is Moved else found


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'hub', 'repeated edges', 'path', 'self-loops'])
@pytest.mark.parametrize('kind', [Moved, Several])
def test_outputs_and_gradients_are_those_of_pyg(kind, graph):
    torch.manual_seed(0)
    assert_as_pyg(kind(), given(kind, graph))


@pytest.mark.parametrize('kind', [Moved, Several])
def test_maps_are_taken_once(kind):
    conv = pygfuse.compile(kind())
    conv(**given(kind, 'random'))
    (plan,) = conv.plans()
    maps = [str(form.title) for form in {id(form): form for form in plan.walks.values()}.values()]
    assert sum(title.startswith('network') for title in maps) == (2 if kind is Moved else 1)
    message = 2 * HIDDEN * HIDDEN
    assert plan.cost.operations['edge'] < (3 if kind is Moved else 4) * message


def test_so_many_numbers_of_an_edge_are_kept():
    conv = pygfuse.compile(Moved())

    def kept(num_edges: int) -> int:
        arguments = given(Moved, num_edges=num_edges)
        arguments['x'].requires_grad_()
        conv(**arguments)  # sorts the edges
        return saved_bytes(lambda: conv(**arguments), exclude=[*arguments.values(), *conv.parameters()])

    # a distance, a message, and how far it moves
    assert (kept(40_000) - kept(20_000)) / 20_000 <= 4 * (1 + HIDDEN + 1)


def test_many_edges_are_computed_twice(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.MOST_KEPT_BYTES', 2**10)
    torch.manual_seed(0)
    conv = Moved()
    assert_as_pyg(conv, given(Moved, 'random'))
    (plan,) = conv.plans()
    assert not plan.of_so_many(1000).keeps_wide
