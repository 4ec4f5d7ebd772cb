"""Messages without a program run by PyTorch's operators on chunks of edges."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.nn import Dropout
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.compiler.forms.chunked import Chunked
from pygfuse.compiler.forms.cost import cost_as_written
from pygfuse.compiler.refusal import Refused
from pygfuse.mapping.few_edges import SO_FEW_EDGES, fewest_of_chunks
from pygfuse.memory import peak_bytes, saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.compiler.values_of_edges import CHUNKED, CONVS, FORMED, Distances, Updated, arguments
from tests.support.parity import GRAPHS, random_edges


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch):
    """What is narrow, or a network's, would be kept, and the rest have another form."""
    monkeypatch.setattr('pygfuse.compiler.forms.form.SHARES', ())

    def refuse(*_, **__):
        raise Refused('not here')

    for name in ('networks_apart', 'wordless_apart'):
        monkeypatch.setattr(f'pygfuse.compiler.forms.form.{name}', refuse)


def forms(conv):
    return {type(form) for plan in conv.plans() for form in plan.walks.values()}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'hub', 'repeated edges'])
@pytest.mark.parametrize('name', CHUNKED)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    torch.manual_seed(0)
    conv, given = CONVS[name](), arguments(GRAPHS[graph]())
    assert_as_pyg(conv, given)
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


class Again(Own):
    """Attention over values that its scores, their maximum and their sum are computed of."""

    def __init__(self):
        super().__init__(node_dim=0)
        self.lin, self.score = torch.nn.Linear(3, 8), torch.nn.Linear(8, 8)

    def message(self, x_j, edge_attr, index, ptr, size_i):
        found = torch.atan(self.lin(edge_attr))
        return softmax(torch.atan(self.score(found)), index, ptr, size_i) * found


class Mapped(Own):
    """Nearly all that chunks compute are maps."""

    def __init__(self):
        super().__init__()
        self.lin, self.gate, self.activation = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1), torch.nn.PReLU()

    def message(self, x_i, x_j, edge_attr):
        found = torch.cumsum(self.lin(self.activation(x_i + x_j)), dim=-1)
        return self.gate(found).sigmoid() * found


@pytest.mark.parametrize(
    ('make', 'is_again'),
    [(Again, True), (Mapped, True), (CONVS['distances'], False)],
    ids=['again', 'mapped', 'once'],
)
def test_chunks_that_compute_much_again_are_for_more_edges(make, is_again, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_CHUNKED_BYTES', 2**20)
    conv, example = pygfuse.compile(make()), GRAPHS['random']()
    edge_attr = torch.randn(example.edge_index.shape[1], 3)
    given = {'edge_index': example.edge_index, 'x': torch.randn(60, 8), 'edge_attr': edge_attr}
    conv(**(arguments(example) if make is CONVS['distances'] else given))
    (plan,) = conv.plans()
    held = cost_as_written(plan.captured.output).held
    assert plan.fewest_edges == fewest_of_chunks(4 * held, is_computed_again=is_again)
    assert conv.note.reason.endswith(f' has no kernel, and there are {SO_FEW_EDGES}')


@pytest.mark.parametrize('are_narrow', [False, True])
def test_values_on_chunks_are_for_more_edges(are_narrow, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_CHUNKED_BYTES', 2**20)
    if not are_narrow:
        monkeypatch.setattr('pygfuse.compiler.plan.fewest._NARROW_ON_CHUNKS', 0)
    example = GRAPHS['random']()
    conv = pygfuse.compile(Updated())
    conv(example.edge_index, x=example.x(8), pos=example.x(3))
    (plan,) = conv.plans()
    held = cost_as_written(plan.captured.output).held
    assert plan.fewest_edges == fewest_of_chunks(4 * held, is_computed_again=are_narrow)


@pytest.mark.parametrize('are_few', [False, True])
def test_values_of_few_edges_are_updated_by_pyg(are_few, request, monkeypatch):
    if are_few:
        request.getfixturevalue('by_pyg')
    runs = []
    monkeypatch.setattr('pygfuse.conv._compiled.call.Call.run', lambda call, plan: runs.append(plan))
    example = GRAPHS['random']()
    pygfuse.compile(Updated())(example.edge_index, x=example.x(8), pos=example.x(3))
    assert len(runs) == (not are_few)
