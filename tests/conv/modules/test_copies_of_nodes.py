"""Modules whose features have dimensions before that of nodes."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

import pygfuse
from pygfuse.compiler import Refused
from pygfuse.conv._modules.copies_of_nodes import edges_of_copies
from pygfuse.mapping import few_edges
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from pygfuse.memory import saved_bytes
from tests.compiler import modules_of_copies as copies
from tests.compiler.modules_of_copies import COPIES
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, assert_same_in_traces, given

GRAPHS = {
    'any': lambda: given()['edge_index'],
    'a hub': lambda: torch.stack([torch.arange(150) % NODES, torch.full((150,), 3)]),
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'isolated nodes': lambda: torch.randint(3, 9, (2, 60)),
    'self-loops alone': lambda: torch.arange(NODES).repeat(2, 2),
    'one edge': lambda: torch.tensor([[1], [2]]),
    'int32': lambda: given()['edge_index'].int(),
    'not contiguous': lambda: given()['edge_index'].t().contiguous().t(),
}


def of_copies(data, count=COPIES):
    generator = torch.Generator().manual_seed(count)
    edges = data['edge_index'].shape[1]
    x = torch.randn(count, data['x'].shape[0], WIDTH, generator=generator)
    return {**data, 'x': x, 'edge_attr': torch.randn(count, edges, OF_EDGES, generator=generator)}


def data_of(edge_index, count=COPIES):
    return of_copies({**given(edges=edge_index.shape[1]), 'edge_index': edge_index}, count)


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('kind', copies.ARGUMENTS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind, graph):
    torch.manual_seed(0)
    assert_same(kind(), copies.ARGUMENTS[kind](data_of(GRAPHS[graph]())))


@pytest.mark.parametrize('count', [1, 2, 17])
def test_numbers_of_copies(count):
    torch.manual_seed(0)
    assert_same(copies.Heads(), copies.ARGUMENTS[copies.Heads](data_of(given()['edge_index'], count)))


@pytest.mark.parametrize('kind', copies.ARGUMENTS)
def test_each_call_has_its_own_edges(kind):
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(kind(), lambda data: copies.ARGUMENTS[kind](of_copies(data)))
    assert len(compiled.plans()) == 1


def test_other_numbers_of_copies_one_after_the_other():
    """The last batch of an epoch is a smaller one, and inference has one sample, or one without that dimension."""
    torch.manual_seed(0)
    module, data = copies.Heads(), given()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for shape in ((8,), (8,), (3,), (), (2, 4), (8,)):
        x = torch.randn(*shape, NODES, WIDTH)
        torch.testing.assert_close(compiled(x, data['edge_index']), module(x, data['edge_index']))
        assert compiled.note.reason is None


def test_edges_that_are_written_to():
    torch.manual_seed(0)
    module, data = copies.Heads(), data_of(given()['edge_index'])
    compiled, edge_index = pygfuse.compile(copy.deepcopy(module)), data['edge_index']
    for _ in range(2):
        torch.testing.assert_close(compiled(data['x'], edge_index), module(data['x'], edge_index))
        edge_index[0] = edge_index[0].flip(0)


def test_two_sets_of_nodes():
    torch.manual_seed(0)
    edge_index = torch.stack([torch.randint(NODES, (90,)), torch.randint(11, (90,))])
    arguments = {'x': torch.randn(4, NODES, WIDTH), 'other': torch.randn(4, 11, 3), 'edge_index': edge_index}
    assert_same(copies.Encoder(), arguments)


def test_edges_of_copies_are_kept():
    edge_index = given()['edge_index']
    made = edges_of_copies(edge_index, 3, (NODES,))
    assert edges_of_copies(edge_index, 3, (NODES,)) is made
    expected = torch.cat([edge_index + k * NODES for k in range(3)], dim=1)
    assert made.equal(expected)
    edge_index[0, 0] += 1
    assert not edges_of_copies(edge_index, 3, (NODES,)).equal(expected)


@pytest.mark.parametrize('node', [NODES, -1])
def test_edges_of_copies_are_not_made_of_others(node):
    """Of features with several dimensions behind that of nodes there would be as many copies as nodes."""
    edge_index = torch.tensor([[0, 1], [node, 2]])
    with pytest.raises(Refused):
        edges_of_copies(edge_index, 10**6, (NODES,))


@pytest.mark.parametrize('node', [NODES, -1])
def test_nodes_that_are_not_there(node):
    """They are an error of torch's, or counted from the end, in each copy."""
    torch.manual_seed(0)
    module, data = copies.EdgeStates(), data_of(given()['edge_index'])
    compiled = pygfuse.compile(copy.deepcopy(module))
    arguments = copies.ARGUMENTS[copies.EdgeStates](data)
    compiled(**arguments)
    arguments['edge_index'] = torch.cat([data['edge_index'][:, 1:], torch.tensor([[node], [0]])], dim=1)
    if node < 0:
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
    else:
        with pytest.raises(IndexError):
            compiled(**arguments)


class Over(torch.nn.Module):
    """What is of all nodes of a copy, or of all copies, and a sum along edges."""

    def __init__(self, function):
        super().__init__()
        self.function, self.norm = function, torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x, edge_index, edge_weight, own):
        row, col = edge_index
        x, edge_weight, own = self.function(self, x, edge_weight, own)
        return torch.zeros_like(x).index_add(1, col, x[:, row] * edge_weight[:, None] + own[row])


OVER = {
    'nodes': lambda self, x, e, own: (x - x.mean(dim=1, keepdim=True), e, own),
    'copies': lambda self, x, e, own: (x - x.mean(dim=0, keepdim=True), e, own),
    'all': lambda self, x, e, own: (x / x.norm(), e, own),
    'order of copies': lambda self, x, e, own: (x.flip(0), e, own),
    'running over copies': lambda self, x, e, own: (x.cumsum(0), e, own),
    'softmax of nodes': lambda self, x, e, own: (x.softmax(1), e, own),
    'some copies': lambda self, x, e, own: (x[:2], e, own),
    'batch norm': lambda self, x, e, own: (self.norm(x.flatten(0, 1)).view(x.shape), e, own),
    'batch norm of what all share': lambda self, x, e, own: (x, e, self.norm(own)),
    'mean of what all share': lambda self, x, e, own: (x, e, own - own.mean(0)),
    'sum over edges': lambda self, x, e, own: (x, e / e.sum(), own),
    'mean over edges': lambda self, x, e, own: (x, e - e.mean(), own),
    'largest of edges': lambda self, x, e, own: (x, (e - e.max()).exp(), own),
    'order of edges': lambda self, x, e, own: (x, e.flip(0), own),
    'dropout of what all share': lambda self, x, e, own: (x, e, torch.dropout(own, 1.0, True)),
    'another order of dimensions': lambda self, x, e, own: (x.transpose(0, 1).transpose(0, 1), e, own),
    'values in a row': lambda self, x, e, own: (x.reshape(x.size(0), -1).tanh().view(x.shape), e, own),
}


@pytest.mark.parametrize('name', OVER)
def test_what_is_of_several_rows_runs_its_own_code(name):
    torch.manual_seed(0)
    data = data_of(given()['edge_index'])
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')} | {'own': given()['x']}
    module = Over(OVER[name])
    expected = copy.deepcopy(module)(**arguments)
    compiled = pygfuse.compile(module)
    torch.testing.assert_close(compiled(**arguments), expected)
    assert compiled.note.reason is not None


def test_what_all_copies_share_is_gathered():
    torch.manual_seed(0)
    data = data_of(given()['edge_index'])
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')} | {'own': given()['x']}
    assert_same(Over(_as_it_is), arguments)


def _as_it_is(self, x, edge_weight, own):
    return x, edge_weight, own


def test_few_edges_of_all_copies(monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_COPIES', 100)
    monkeypatch.setattr(few_edges, 'MOST_OF_A_MODULE', 100)
    compiled, edge_index = pygfuse.compile(copies.Heads()), torch.randint(NODES, (2, 60))
    reasons = []
    for shape in ((1,), (3,), (1,), (), (2, 2)):
        compiled(torch.randn(*shape, NODES, WIDTH), edge_index)
        reasons.append(compiled.note.reason)
    assert reasons == [SO_FEW_EDGES, None, SO_FEW_EDGES, SO_FEW_EDGES, None]


def test_without_edges():
    none = torch.zeros(2, 0, dtype=torch.long)
    assert_same(copies.Heads(), copies.ARGUMENTS[copies.Heads](data_of(none)), 'there are no edges')


def test_as_many_copies_as_nodes_or_edges():
    torch.manual_seed(0)
    for count in (NODES, 60):
        edge_index = torch.randint(NODES, (2, 60))
        arguments = copies.ARGUMENTS[copies.EdgeStates](data_of(edge_index, count))
        assert_same(copies.EdgeStates(), arguments)


@pytest.mark.parametrize('kind', [copies.Heads, copies.EdgeStates])
def test_between_two_traces(kind):
    torch.manual_seed(0)
    assert_same_in_traces(kind(), copies.ARGUMENTS[kind](data_of(given()['edge_index'])))


def test_other_numbers_of_copies_between_two_traces():
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = copies.Heads()
    compiled = pygfuse.compile(copy.deepcopy(module))
    traced, edge_index = torch.compile(compiled, backend='aot_eager'), given()['edge_index']
    for count in (8, 8, 3, 5):
        x = torch.randn(count, NODES, WIDTH)
        torch.testing.assert_close(traced(x, edge_index), module(x, edge_index))
        assert compiled.note.reason is None


def test_what_has_no_plan_is_traced():
    torch._dynamo.reset()
    data = data_of(given()['edge_index'])
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')} | {'own': given()['x']}
    compiled = pygfuse.compile(Over(OVER['nodes']))
    expected = compiled(**arguments)
    torch.testing.assert_close(torch.compile(compiled, backend='aot_eager', fullgraph=True)(**arguments), expected)


class Gated(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add(1, col, torch.sigmoid(x[:, col] + x[:, row]) * x[:, row])


def test_saved_bytes_grow_with_nodes_alone():
    compiled, found = pygfuse.compile(Gated()), []
    for edges in (400, 800):
        x, edge_index = torch.randn(COPIES, NODES, WIDTH).requires_grad_(), torch.randint(NODES, (2, edges))
        compiled(x, edge_index)
        assert compiled.note.reason is None
        # which are kept with the edges
        beside = x, edges_of_copies(edge_index, COPIES, (NODES,))
        found.append(saved_bytes(functools.partial(compiled, x, edge_index), exclude=beside))
    assert found[0] == found[1]
