"""Messages without a program run by PyTorch's operators on chunks of edges."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as F
from torch.nn import GELU, Dropout, LayerNorm, Linear, Sequential, SiLU
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.compiler.chunked import Chunked
from pygfuse.memory import peak_bytes, saved_bytes
from tests.compiler.own_convs import Own
from tests.support import parity
from tests.support.parity import GRAPHS, random_edges


class Distances(Own):
    """A network of both ends and their distance (EGNN)."""

    def __init__(self, aggr='sum', width=8):
        super().__init__(aggr)
        self.nn = Sequential(Linear(2 * width + 1, 16), LayerNorm(16), SiLU(), Linear(16, 5))

    def message(self, x_i, x_j, pos_i, pos_j):
        distance = (pos_i - pos_j).norm(dim=-1, keepdim=True)
        return self.nn(torch.cat([x_i, x_j, distance], dim=-1))


class Smeared(Own):
    """A continuous filter of Gaussians of the distance, with a cosine cut-off."""

    def __init__(self):
        super().__init__('mean')
        self.register_buffer('centres', torch.linspace(0, 4, 6))
        self.filter = Sequential(Linear(6, 8), SiLU(), Linear(8, 8))

    def message(self, x_j, pos_i, pos_j):
        distance = (pos_i - pos_j).square().sum(dim=-1).add(1e-2).sqrt()
        smeared = torch.exp(-2.0 * (distance.unsqueeze(-1) - self.centres) ** 2)
        cutoff = 0.5 * (torch.cos(distance) + 1.0)
        return x_j * self.filter(smeared) * cutoff.unsqueeze(-1)


class Gated(Distances):
    def __init__(self):
        super().__init__()
        self.gate = Linear(5, 1)

    def message(self, x_i, x_j, pos_i, pos_j):
        out = super().message(x_i, x_j, pos_i, pos_j)
        return torch.sigmoid(self.gate(out)) * out


class Angles(Own):
    def message(self, x_j, pos_i, pos_j):
        cross = torch.cross(pos_i, pos_j, dim=-1).square().sum(dim=-1).add(1e-2).sqrt()
        return x_j * torch.atan2(cross, (pos_i * pos_j).sum(dim=-1)).unsqueeze(-1)


class Weighed(Own):
    """A softmax over edges of a score that no program has."""

    def __init__(self):
        super().__init__('sum')
        self.score = Sequential(Linear(16, 8), GELU(), Linear(8, 1))

    def message(self, x_i, x_j, pos_i, pos_j, index, ptr, size_i):
        return softmax(self.score(torch.cat([x_i, x_j], dim=-1)), index, ptr, size_i) * torch.asinh(x_j)


class Updated(Own):
    """New values of edges."""

    def __init__(self):
        super().__init__()
        self.lin = Linear(8, 4)

    def forward(self, edge_index, **given):
        return self.edge_updater(edge_index, **given)

    def edge_update(self, x_i, x_j, pos_i, pos_j):
        return F.gelu(self.lin(torch.cumsum(x_i * x_j, dim=-1))) * (pos_i - pos_j).norm(dim=-1, keepdim=True)


CONVS = {
    'distances': Distances,
    'distances, mean': lambda: Distances('mean'),
    'distances, max': lambda: Distances('max'),
    'distances, min': lambda: Distances('min'),
    'smeared': Smeared,
    'gated': Gated,
    'angles': Angles,
    'softmax': Weighed,
    'edge update': Updated,
}
FORMED = {name: make for name, make in CONVS.items() if name != 'edge update'}


def arguments(example):
    generator = torch.Generator().manual_seed(5)
    pos = torch.randn(example.num_sources, 3, generator=generator)
    source, target = example.edge_index
    # a distance of 0 has no derivative
    return {'edge_index': example.edge_index[:, source != target], 'x': example.x(8), 'pos': pos}


def forms(conv):
    return {type(form) for plan in conv.plans() for form in plan.walks.values()}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'hub', 'repeated edges'])
@pytest.mark.parametrize('name', CONVS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    torch.manual_seed(0)
    conv, given = CONVS[name](), arguments(GRAPHS[graph]())
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    plain = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    pygfuse.compile(conv)
    parity.assert_close(parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0), reference)
    parity.assert_close(parity.results(conv, given, torch.float32, 0), reference, plain)
    assert conv.note.reason is None
    assert Chunked in forms(conv)


@pytest.mark.parametrize('name', ['distances', 'smeared', 'gated', 'angles'])
def test_gradients_of_gradients(name):
    torch.manual_seed(0)
    conv = pygfuse.compile(CONVS[name]().double())
    edge_index = random_edges(5, 5, 12)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x, pos = (torch.randn(5, width, dtype=torch.float64, requires_grad=True) for width in (8, 3))
    assert torch.autograd.gradcheck(lambda x, pos: conv(edge_index, x=x, pos=pos), (x, pos))
    assert torch.autograd.gradgradcheck(lambda x, pos: conv(edge_index, x=x, pos=pos), (x, pos))
    assert conv.note.reason is None


@pytest.mark.parametrize('name', FORMED)
def test_memory_does_not_grow_with_edges_times_features(name):
    torch.manual_seed(0)
    conv, x, pos = pygfuse.compile(FORMED[name]()), torch.randn(40, 8, requires_grad=True), torch.randn(40, 3)

    def growth(measure):
        found = []
        for num_edges in (20_000, 40_000):
            edge_index = random_edges(40, 40, num_edges)
            conv(edge_index, x=x, pos=pos)  # sorts the edges
            found.append(measure(edge_index))
        return found[1] - found[0]

    assert growth(lambda edges: saved_bytes(lambda: conv(edges, x=x, pos=pos), exclude=[x, pos, edges])) <= 0
    # chunks are of one size; the places of rows are numbers an edge
    assert growth(lambda edges: peak_bytes(lambda: conv(edges, x=x, pos=pos).sum().backward())) <= 20_000 * 8
    assert conv.note.reason is None


class Dropped(Distances):
    def __init__(self):
        super().__init__()
        self.nn.append(Dropout(0.5))


def test_dropout_is_drawn_by_torch_s_seed_and_the_same_in_backward():
    conv, given = pygfuse.compile(Dropped()), arguments(GRAPHS['random']())
    given['x'].requires_grad_()
    outs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outs.append(conv(**given))
    assert conv.note.reason is None
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    first, second = (torch.autograd.grad(out.sum(), given['x'])[0] for out in outs[:2])
    assert torch.equal(first, second)
    assert torch.equal(conv.eval()(**given), conv(**given))


def test_half_of_the_values_is_dropped_and_the_others_doubled():
    class Ones(Own):
        def message(self, x_j):
            return F.dropout(F.gelu(x_j), 0.5, self.training)

    conv = pygfuse.compile(Ones('mean'))
    x, edge_index = torch.ones(4000, 1), torch.stack([torch.arange(4000), torch.zeros(4000, dtype=torch.int64)])
    found = conv(edge_index, x=x)[0].item() / F.gelu(torch.ones(())).item()
    assert conv.note.reason is None
    assert found == pytest.approx(1.0, abs=0.1)
    assert found != pytest.approx(1.0, abs=1e-6)


def test_the_report_says_so():
    conv = pygfuse.compile(Distances())
    conv(**arguments(GRAPHS['random']()))
    (plan,) = conv.plans()
    (form,) = plan.walks.values()
    assert form.title == 'operators on chunks of edges'
    assert 'layer_norm' in form.text


def test_features_of_nodes_that_are_computed_for_active_rows_alone():
    torch.manual_seed(0)
    conv, given = pygfuse.compile(Distances()), arguments(GRAPHS['random']())
    mask = torch.arange(60) % 3 == 0
    found = []
    for block in (pygfuse.active(mask), contextlib.nullcontext()):
        x = given['x'].clone().requires_grad_()
        with block:
            out = conv(**{**given, 'x': x})
        out[mask].square().sum().backward()
        found.append((out[mask], x.grad))
    assert conv.note.reason is None
    torch.testing.assert_close(*found)
