"""Modules whose edges have a matrix by their type, and that walk along their edges more than once."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.utils import scatter, softmax

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, given

TYPES = 4


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.key = (nn.Parameter(0.3 * torch.randn(TYPES, WIDTH, WIDTH)) for _ in range(2))
        self.score = nn.Linear(2 * WIDTH, 1)

    def mapped(self, x, edge_type):
        return torch.bmm(x.unsqueeze(1), self.weight[edge_type]).squeeze(1)


class Attention(Typed):
    """Both ends are mapped, scored, and weighed; the scores are returned, too."""

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        key, query = self.mapped(x[row], edge_type), self.mapped(x[col], edge_type)
        score = softmax(F.leaky_relu(self.score(torch.cat([key, query], dim=-1))), col, num_nodes=x.size(0))
        return torch.zeros_like(x).index_add(0, col, score * key), score


class TwoSteps(Typed):
    def forward(self, x, edge_index, edge_type):
        for _ in range(2):
            message = self.mapped(x[edge_index[0]], edge_type)
            x = torch.zeros_like(x).index_add(0, edge_index[1], message).tanh()
        return x


class TwoMatrices(Typed):
    """Keys and values by matrices of their own, reduced to both ends, beside a mean over all edges."""

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        key = torch.einsum('ei,eio->eo', x[row], self.key[edge_type])
        value = self.mapped(x[row].tanh(), edge_type)
        score = softmax((key * x[col]).sum(dim=-1, keepdim=True), col, num_nodes=x.size(0))
        out = torch.zeros_like(x).index_add(0, col, score * value)
        return out.index_add(0, row, value) * key.square().mean()


class OfValues(Typed):
    """Values that edges compute, mapped, returned, and reduced to both ends."""

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        message = self.mapped(x[row] * x[col].sigmoid(), edge_type)
        return x.index_add(0, col, message).index_add(0, row, message.relu()), message


class OfNodesAlone(Typed):
    """What is mapped is of the first step's results, whose sums are of edges as they are."""

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        degree = torch.zeros(x.size(0), 1, dtype=x.dtype).index_add(0, col, torch.ones(row.size(0), 1, dtype=x.dtype))
        h = torch.zeros_like(x).index_add(0, col, x[row]) / degree.clamp(min=1)
        return torch.zeros_like(x).index_add(0, col, self.mapped(h[row], edge_type))


class BackToSources(Typed):
    """What is mapped is followed by maxima over the edges of each source."""

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        message = self.mapped(x[row], edge_type)
        h = torch.zeros_like(x).index_add(0, col, message * x[col]).tanh()
        return scatter(h[row].sin() * x[col], row, 0, x.size(0), 'max') + scatter(x[row], row, 0, x.size(0), 'min')


KINDS = [BackToSources, Attention, TwoSteps, TwoMatrices, OfValues, OfNodesAlone]


def arguments_of(data):
    return {name: data[name] for name in ('x', 'edge_index', 'edge_type')}


GRAPHS = {
    'any': lambda: given()['edge_index'],
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'isolated nodes': lambda: torch.randint(3, 9, (2, 60)),
    'a hub': lambda: torch.stack([torch.randint(NODES, (80,)), torch.full((80,), 5)]),
}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('kind', KINDS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind, graph):
    torch.manual_seed(0)
    edge_index = GRAPHS[graph]()
    data = given(edges=edge_index.shape[1])
    assert_same(kind(), arguments_of({**data, 'edge_index': edge_index}))


@pytest.mark.parametrize('kind', KINDS)
def test_each_call_has_its_own_edges_and_types(kind):
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(kind(), arguments_of)
    assert len(compiled.plans()) == 1


class OfTwoSets(Typed):
    """Edges and others, each of types of its own."""

    def forward(self, x, edge_index, edge_type, edge_index_2, edge_type_2):
        message = self.mapped(x[edge_index[0]], edge_type)
        h = torch.zeros_like(x).index_add(0, edge_index[1], message).tanh()
        row, col = edge_index_2
        return h + torch.zeros_like(x).index_add(0, col, self.mapped(h[row], edge_type_2) * x[col])


def test_types_of_several_sets():
    torch.manual_seed(0)
    data = given()
    others = {'edge_index_2': data['others'], 'edge_type_2': torch.randint(TYPES, data['others'].shape[1:])}
    compiled = assert_same(OfTwoSets(), {**arguments_of(data), **others})
    arguments = {**arguments_of(data), **others, 'edge_type_2': others['edge_type_2'] + TYPES}
    with pytest.raises(IndexError):
        compiled(**arguments)
    assert compiled.note.reason.startswith('types of edges')


def test_a_type_without_edges_and_types_of_the_end():
    torch.manual_seed(0)
    module, arguments = Attention(), arguments_of(given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for types, reason in ((arguments['edge_type'] % 2, None), (arguments['edge_type'] - TYPES, 'types of edges')):
        called = {**arguments, 'edge_type': types}
        torch.testing.assert_close(compiled(**called), module(**called))
        assert compiled.note.reason == reason or compiled.note.reason.startswith(reason)


def test_no_matrix_of_an_edge_is_kept():
    torch.manual_seed(0)
    arguments = arguments_of(given(edges=2000))
    module = TwoSteps()
    own = saved_bytes(lambda: module(**arguments))
    compiled = pygfuse.compile(module)
    assert saved_bytes(lambda: compiled(**arguments)) < own / 4
    assert compiled.note.reason is None


@pytest.mark.parametrize('is_long', [False, True])
def test_traces_do_not_enter_them(is_long):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, data = Attention(), given(edges=70_000 if is_long else 200)
    traced = torch.compile(pygfuse.compile(copy.deepcopy(module)), backend='aot_eager')
    torch._dynamo.utils.counters.clear()
    for ours, theirs in zip(traced(**arguments_of(data)), module(**arguments_of(data)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    # none, or that between two traces
    assert sum(torch._dynamo.utils.counters['graph_break'].values()) <= 1
