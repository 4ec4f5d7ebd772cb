"""Messages of a few rows that read the same numbers of an edge, as of equivariant networks: a walk for each row."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Linear, Sequential, SiLU

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, random_edges

DIM = 4


class Vectors(Own):
    """Vectors of sources, scaled and shifted by what networks make of an edge."""

    def __init__(self, channels=16, **options):
        super().__init__(node_dim=0, **options)
        self.filter = Sequential(Linear(DIM, 2 * channels), SiLU(), Linear(2 * channels, 2 * channels), SiLU())

    def message(self, vec_j, edge_attr, direction):
        scale, shift = self.filter(edge_attr).chunk(2, dim=-1)
        return vec_j * scale.unsqueeze(1) + shift.unsqueeze(1) * direction.unsqueeze(2)


class Both(Vectors):
    """With those of targets, and without numbers of directions."""

    def message(self, vec_i, vec_j, edge_attr):
        scale, shift = self.filter(edge_attr).chunk(2, dim=-1)
        return (vec_i - vec_j) * scale.unsqueeze(1) + shift.unsqueeze(1).tanh()


def given_of(graph, rows=3, channels=16):
    generator = torch.Generator().manual_seed(1)
    edges = graph.edge_index.shape[1]
    sizes = graph.num_sources, graph.num_targets
    vec = tuple(torch.randn(size, rows, channels, generator=generator) for size in sizes)
    of_edges = {'edge_attr': torch.randn(edges, DIM, generator=generator)}
    of_edges['direction'] = torch.randn(edges, rows, generator=generator)
    return {'edge_index': graph.edge_index, 'vec': vec, 'size': sizes, **of_edges}


def rows_apart(conv):
    return [
        len(form.directions) for plan in conv.plans() for form in plan.walks.values() if hasattr(form, 'directions')
    ]


@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max'])
@pytest.mark.parametrize('kind', [Vectors, Both])
def test_outputs_and_gradients_are_those_of_pyg(kind, aggr):
    torch.manual_seed(0)
    conv = kind(aggr=aggr)
    assert_as_pyg(conv, given_of(GRAPHS['random']()))
    assert rows_apart(conv) == [3]


@pytest.mark.parametrize('graph', [name for name in GRAPHS if name not in ('no edges', 'one node')])
def test_graphs_of_all_kinds(graph):
    torch.manual_seed(0)
    assert_as_pyg(Vectors(), given_of(GRAPHS[graph]()))


@pytest.mark.parametrize(('rows', 'channels'), [(2, 16), (4, 20), (5, 16), (3, 8)])
def test_few_wide_rows(rows, channels):
    torch.manual_seed(0)
    conv = Vectors(channels)
    assert_as_pyg(conv, given_of(GRAPHS['random'](), rows, channels))
    assert rows_apart(conv) == ([0] if rows > 4 or channels < 16 else [rows])


def test_nothing_is_kept_for_each_direction():
    """What is kept of an edge are the numbers of the network: they are not copied for each row."""
    torch.manual_seed(0)
    kept = []
    for edges in (1000, 2000):
        conv = pygfuse.compile(Vectors(32))
        given = {'edge_index': random_edges(50, 50, edges), 'edge_attr': torch.randn(edges, DIM)}
        given |= {'vec': torch.randn(50, 3, 32, requires_grad=True), 'direction': torch.randn(edges, 3)}
        conv(**given)
        kept.append(saved_bytes(lambda conv=conv, given=given: conv(**given), exclude=[*given.values()]))
    of_edge = (kept[1] - kept[0]) / 1000
    assert of_edge <= 4 * 2 * 32


def test_gradients_of_gradients():
    torch.manual_seed(0)
    conv, given = Vectors().double(), given_of(GRAPHS['repeated edges']())
    given = {
        name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for name, x in given.items()
    }
    given['vec'] = given['vec'][0].double().requires_grad_()
    fused, found = pygfuse.compile(copy.deepcopy(conv)), []
    for layer in (conv, fused):
        parameters = [given['vec'], *layer.parameters()]
        first = torch.autograd.grad(layer(**given).sin().sum(), parameters, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), parameters))
    torch.testing.assert_close(found[1], found[0])


def test_torch_compile():
    torch.manual_seed(0)
    conv, given = Vectors(), given_of(GRAPHS['random']())
    fused = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='eager')
    torch.testing.assert_close(fused(**given), conv(**given), rtol=1e-4, atol=1e-5)
