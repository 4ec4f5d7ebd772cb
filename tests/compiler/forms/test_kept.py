"""Messages of narrow values of edges, which are kept: the rest is a program or a network, and nothing wide is kept."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Linear, ReLU, Sequential, Tanh

import pygfuse
from pygfuse.compiler.forms.form import forms_of
from pygfuse.compiler.forms.kept import narrow_values_apart
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.ir.values import EDGE, in_order, leaf, value
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.refusal import Refused
from pygfuse.memory import peak_bytes, saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.compiler.values_of_edges import CONVS, arguments
from tests.support import parity
from tests.support.parity import GRAPHS, random_edges

# with what form the rest has, and how many numbers of an edge are kept
KEPT = {
    'distances': ('network on chunks of edges: sum', 1),
    'distances, mean': ('network on chunks of edges: mean', 1),
    'distances, max': ('network on chunks of edges: max', 1),
    'smeared': ('walk: mean, heads=1, channels=8', 2),
    'angles': ('walk: sum, heads=1, channels=8', 1),
    'softmax': ('walk: sum, heads=1, channels=8, weights by softmax', 1),
    'attention': ('walk: sum, heads=2, channels=4, weights by softmax', 2),
    'attention by distance': ('walk: sum, heads=1, channels=8, weights by softmax', 2),
    'scaled': ('walk: mean, heads=1, channels=8', 2),
    'scaled, max': ('walk: max, heads=1, channels=8', 2),
    'moved': ('walk: mean, heads=1, channels=3', 2),
    'filtered': ('network on chunks of edges: sum', 0),
}


def forms(conv) -> list:
    (plan,) = conv.plans()
    return list(plan.walks.values())


# the gradient of a weight of sources is as exact as theirs, PyG's of thousands of equal edges is more so
PAIRS = [(name, graph) for name in KEPT for graph in ('random', 'isolated nodes', 'hub', 'repeated edges', 'path')
         if (name, graph) != ('filtered', 'hub')]  # fmt: skip


@pytest.mark.parametrize(('name', 'graph'), PAIRS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    torch.manual_seed(0)
    conv, given = CONVS[name](), arguments(GRAPHS[graph]())
    assert_as_pyg(conv, given)
    assert forms(conv)[0].title == KEPT[name][0]


@pytest.mark.usefixtures('at_once')
@pytest.mark.parametrize('name', KEPT)
def test_few_edges(name):
    torch.manual_seed(0)
    conv, given = CONVS[name](), arguments(GRAPHS['random']())
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    plain = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    parity.assert_close(parity.results(pygfuse.compile(conv), given, torch.float32, 0), reference, plain)


@pytest.mark.parametrize('name', ['distances', 'softmax', 'attention by distance', 'scaled', 'moved', 'filtered'])
def test_gradients_of_gradients(name):
    torch.manual_seed(0)
    conv = pygfuse.compile(CONVS[name]().double())
    edge_index = random_edges(5, 5, 12)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x, pos = (torch.randn(5, width, dtype=torch.float64, requires_grad=True) for width in (8, 3))
    # a gradient that is the same at all edges would not tell one from another
    chosen = torch.randn(5, conv(edge_index, x=x, pos=pos).shape[1], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, pos: conv(edge_index, x=x, pos=pos) * chosen, (x, pos))
    assert torch.autograd.gradgradcheck(lambda x, pos: conv(edge_index, x=x, pos=pos) * chosen, (x, pos))
    assert conv.note.reason is None


@pytest.mark.parametrize('name', KEPT)
def test_so_many_numbers_of_an_edge_are_in_memory(name):
    torch.manual_seed(0)
    conv, x, pos = pygfuse.compile(CONVS[name]()), torch.randn(40, 8, requires_grad=True), torch.randn(40, 3)
    sizes = 20_000, 40_000

    def growth(measure) -> int:
        found = []
        for num_edges in sizes:
            edge_index = random_edges(40, 40, num_edges)
            conv(edge_index, x=x, pos=pos)  # sorts the edges
            found.append(measure(edge_index))
        return (found[1] - found[0]) // (sizes[1] - sizes[0])

    kept = KEPT[name][1]
    assert growth(lambda edges: saved_bytes(lambda: conv(edges, x=x, pos=pos), exclude=[x, pos, edges])) == 4 * kept
    # their gradients, those of scores, and the places of rows
    of_peak = growth(lambda edges: peak_bytes(lambda: conv(edges, x=x, pos=pos).sum().backward()))
    assert of_peak <= 4 * 6 * kept + 12
    assert f'numbers an edge in memory: {kept}' in str(pygfuse.explain(conv)).splitlines()[-1]


def test_a_checkpoint_saves_what_it_computes_again():
    conv = pygfuse.compile(CONVS['attention by distance']())
    given = arguments(GRAPHS['random']())
    x = given.pop('x').requires_grad_()
    expected = torch.autograd.grad(conv(x=x, **given).square().sum(), x)[0]
    out = torch.utils.checkpoint.checkpoint(lambda x: conv(x=x, **given), x, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x)[0], expected)


@pytest.mark.slow
def test_the_operator_s_way():
    """Where torch.compile traces the layer."""
    torch.manual_seed(0)
    conv, given = CONVS['attention by distance'](), arguments(GRAPHS['random']())
    expected = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    compiled = torch.compile(pygfuse.compile(conv), backend='aot_eager')
    torch.testing.assert_close(compiled(**given), expected['output'], rtol=1e-5, atol=1e-5)


class Rectified(Own):
    """The largest of products with what is often zero, where they tie."""

    def __init__(self, aggr):
        super().__init__(aggr)
        self.nn = Sequential(Linear(16, 16), ReLU(), Linear(16, 8), ReLU())

    def message(self, x_i, x_j):
        return x_j * self.nn(torch.cat([x_i, x_j], dim=-1))


@pytest.mark.parametrize(('aggr', 'form'), [('max', [Walk, Network]), ('sum', [Network])])
def test_a_maximum_of_products_is_no_network(aggr, form):
    conv, given = pygfuse.compile(Rectified(aggr)), arguments(GRAPHS['random']())
    conv(given['edge_index'], x=given['x'])
    assert [type(found) for found in forms(conv)] == form


class OfTargets(Rectified):
    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j], dim=-1)) * x_i


def test_factors_of_targets_are_none_of_a_network():
    torch.manual_seed(0)
    conv, given = OfTargets('sum'), arguments(GRAPHS['random']())
    expected = conv(given['edge_index'], x=given['x'])
    torch.testing.assert_close(pygfuse.compile(conv)(given['edge_index'], x=given['x']), expected)


class GatedBySelf(Own):
    """A network, times a gate of its own values: to keep the gate alone would take the network twice."""

    def __init__(self):
        super().__init__('sum')
        self.nn, self.gate = Sequential(Linear(16, 16), ReLU(), Linear(16, 16), Tanh()), Linear(16, 1)

    def message(self, x_i, x_j):
        out = self.nn(torch.cat([x_i, x_j], dim=-1))
        return out * torch.sigmoid(self.gate(out))


def test_no_map_is_taken_twice():
    conv = pygfuse.compile(GatedBySelf())
    given = arguments(GRAPHS['random']())
    conv(given['edge_index'], x=given['x'])
    assert [type(form) for form in forms(conv)] == [Walk, Network, Network]


def test_what_is_not_narrow_is_not_kept():
    x_i, x_j = leaf('x_i', 'target', (8,), torch.float32), leaf('x_j', 'source', (8,), torch.float32)
    message = value('add', value('cumsum', value('sub', x_i, x_j), dim=1), x_j)
    with pytest.raises(Refused, match='narrow'):
        narrow_values_apart(message, 2)


def test_the_fewest_numbers_are_kept():
    """A basis of a distance need not be kept where a program has words for it."""
    x_i, x_j = leaf('x_i', 'target', (32,), torch.float32), leaf('x_j', 'source', (32,), torch.float32)
    distance = value('norm', value('sub', x_i, x_j), p=2, dim=(1,), keepdim=True)
    basis = value('exp', value('mul', distance, leaf('centres', 'shared', (16,), torch.float32)))
    message = value('mul', value('repeat', basis, repeats=(2,)), x_j)
    for share, op in ((16, 'norm'), (2, 'exp')):
        (kept,) = narrow_values_apart(message, share).kept
        assert kept.op == op
        assert kept.residency == EDGE
    reduction = value('reduce', message, reduce='sum')
    walk = forms_of(reduction)[id(reduction)]
    (kept,) = (node.attributes['of'] for node in in_order([*walk.operands.values()]) if node.op == 'kept')
    assert {node.op for node in in_order(kept)} >= {'norm'}
    assert 'exp' not in {node.op for node in in_order(kept)}
