"""Networks of a basis of a distance: the basis is in memory, however narrow the message is."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import pygfuse
from pygfuse.compiler.forms.bases import bases_apart
from pygfuse.compiler.ir.values import EDGE, SHARED, leaf, value
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.refusal import Refused
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, assert_close, results

GAUSSIANS = 12


class Filtered(Own):
    """Sources times a network of Gaussians of their distance, whose centres are learned."""

    def __init__(self, channels, aggr='sum'):
        super().__init__()
        self.aggr = aggr
        self.aggr_module = self.aggr_module if aggr == 'sum' else Own(aggr=aggr).aggr_module
        self.centres = nn.Parameter(torch.linspace(0.0, 3.0, GAUSSIANS))
        self.filter = nn.Sequential(nn.Linear(GAUSSIANS, channels), nn.SiLU(), nn.Linear(channels, channels))

    def basis(self, pos_i, pos_j):
        return torch.exp(-(((pos_i - pos_j).norm(dim=-1, keepdim=True) - self.centres) ** 2))

    def message(self, x_j, pos_i, pos_j):
        return x_j * self.filter(self.basis(pos_i, pos_j))


class Joined(Filtered):
    """A network of both ends and of the basis."""

    def __init__(self, channels):
        super().__init__(channels)
        self.filter[0] = nn.Linear(GAUSSIANS + 2 * channels, channels)

    def message(self, x_i, x_j, pos_i, pos_j):
        return self.filter(torch.cat([x_i, x_j, self.basis(pos_i, pos_j)], dim=-1))


class Waves(Filtered):
    """A basis of the angle between two vectors."""

    def basis(self, pos_i, pos_j):
        return torch.cos((pos_i * pos_j).sum(dim=-1, keepdim=True) * self.centres)


KINDS = {'filtered': Filtered, 'joined': Joined, 'waves': Waves}


def given(channels, graph):
    example = GRAPHS[graph]()
    torch.manual_seed(1)
    return {'edge_index': example.edge_index, 'x': example.x(channels), 'pos': torch.randn(example.x(1).shape[0], 3)}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'no edges', 'repeated edges', 'path'])
@pytest.mark.parametrize('channels', [4, 16])
@pytest.mark.parametrize('name', KINDS)
def test_outputs_and_gradients_are_those_of_pyg(name, channels, graph):
    torch.manual_seed(0)
    plain = KINDS[name](channels)
    conv, arguments = pygfuse.compile(copy.deepcopy(plain)), given(channels, graph)
    reference = results(copy.deepcopy(plain).double(), arguments, torch.float64, 0)
    assert_close(results(copy.deepcopy(conv).double(), arguments, torch.float64, 0), reference)
    found = results(conv, arguments, torch.float32, 0)
    assert_close(found, reference, results(plain, arguments, torch.float32, 0))
    assert conv.note.reason is None or graph == 'no edges'


@pytest.mark.parametrize('channels', [4, 16, 20, 64])
@pytest.mark.parametrize('name', KINDS)
def test_the_basis_is_kept_and_nothing_else(name, channels):
    conv = pygfuse.compile(KINDS[name](channels))
    conv(**given(channels, 'random'))
    (plan,) = conv.plans()
    assert plan.chunked_reductions == 0
    # a network of both ends is a program behind its first map
    most = GAUSSIANS + (channels if name == 'joined' else 0)
    assert GAUSSIANS <= plan.cost.held <= most
    assert name == 'joined' or any(isinstance(form, Network) for form in plan.walks.values())


def test_beyond_what_may_be_kept_nothing_is(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.MOST_KEPT_BYTES', 0)
    conv, plain = pygfuse.compile(Filtered(16)), Filtered(16)
    plain.load_state_dict(conv.state_dict())
    arguments = given(16, 'random')
    torch.testing.assert_close(conv(**arguments), plain(**arguments), rtol=1e-4, atol=1e-5)
    (plan,) = conv.plans()
    assert plan.of_so_many(1).cost.held == 0


@pytest.mark.parametrize(('width', 'is_basis'), [(1, True), (GAUSSIANS, False)])
def test_what_is_computed_of_wide_values_is_no_basis(width, is_basis):
    time = leaf('time', EDGE, (width,), torch.float32)
    times, weight = (leaf(name, SHARED, shape, torch.float32) for name, shape in _SHARED.items())
    message = value('linear', value('cos', value('mul', time, times)), weight)
    if is_basis:
        assert [node.op for node in bases_apart(message).kept] == ['cos']
    else:
        with pytest.raises(Refused, match='functions of narrow values'):
            bases_apart(message)


_SHARED = {'times': (GAUSSIANS,), 'weight': (8, GAUSSIANS)}
