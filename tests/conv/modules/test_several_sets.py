"""Modules that read several sets of edges."""

from __future__ import annotations

import copy

import pytest
import torch

import pygfuse
from tests.compiler import modules_of_several_sets as several
from tests.compiler.own_modules import NODES
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, assert_same_in_traces, given
from tests.support import parity

GRAPHS = {
    'any': lambda: given()['edge_index'],
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'isolated nodes': lambda: torch.randint(3, 9, (2, 60)),
    'self-loops alone': lambda: torch.arange(NODES).repeat(2, 2),
}


def arguments_of(kind, data):
    return {name: data[name] for name in ('x', 'edge_index', several.KINDS[kind])}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('kind', several.KINDS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind, graph):
    torch.manual_seed(0)
    edge_index = GRAPHS[graph]()
    data = {**given(edges=edge_index.shape[1]), 'edge_index': edge_index}
    assert_same(kind(), arguments_of(kind, data))


@pytest.mark.parametrize('kind', several.KINDS)
def test_each_call_makes_them_of_its_own_edges(kind):
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(kind(), lambda data: arguments_of(kind, data))
    assert len(compiled.plans()) == 1


EMPTIED = {
    'edge_type': lambda one, k: torch.where(one == k, (k + 1) % several.RELATIONS, one),
    'edge_weight': lambda one, k: one.abs() * (2 * k - 1),
    'edge_attr': lambda one, k: torch.where(torch.arange(one.shape[1]) == k, -one.abs(), one),
}
# its networks are no programs
OF_NETWORKS = (several.Networks,)


@pytest.mark.parametrize('empty', [0, 1])
@pytest.mark.parametrize('kind', [k for k in several.KINDS if k is not several.OneBehindTheOther])
def test_a_set_without_edges(kind, empty):
    torch.manual_seed(0)
    data, name = given(), several.KINDS[kind]
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    compiled(**arguments_of(kind, data))
    assert compiled.note.reason is None
    arguments = arguments_of(kind, {**data, name: EMPTIED[name](data[name], empty)})
    theirs, ours = (parity.results(one.double(), arguments, torch.float64, 0) for one in (module, compiled))
    parity.assert_close(ours, theirs)
    assert compiled.note.reason == ('there are no edges' if kind in OF_NETWORKS else None)


class Asks(torch.nn.Module):
    def forward(self, x, edge_index, edge_type):
        out = torch.zeros_like(x)
        for k in range(2):
            row, col = edge_index[:, edge_type == k]
            if row.numel() == 0:
                out = out + 1
                continue
            out = out.index_add(0, col, x[row])
        return out


def test_what_asks_for_edges_of_an_empty_set_is_its_own_code():
    arguments = arguments_of(several.Relations, given())
    compiled = pygfuse.compile(Asks())
    for empty, reason in ((2, None), (0, 'there are no edges'), (1, 'there are no edges')):
        one = {**arguments, 'edge_type': EMPTIED['edge_type'](arguments['edge_type'], empty)}
        torch.testing.assert_close(compiled(**one), Asks()(**one))
        assert compiled.note.reason == reason


class Roots(torch.nn.Module):
    """Roots of what the edges of one type gather, of which nodes with edges of the other type alone have none."""

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index[:, edge_type == 0]
        out = torch.zeros_like(x).index_add_(0, col, x[row] * x[col])
        row, col = edge_index[:, edge_type == 1]
        return out.index_add(0, col, x[row].sqrt())


def test_nodes_without_edges_of_one_set():
    edge_index, edge_type = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), torch.tensor([0, 0, 1, 1])
    x = torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0]).repeat(8, 1).t()
    assert_same(Roots(), {'x': x, 'edge_index': edge_index, 'edge_type': edge_type})


class AtOnce(torch.nn.Module):
    """Values of two sets of edges that are as many here, in other places."""

    def forward(self, x, edge_index):
        row, col = edge_index
        back_row, back_col = edge_index.flip(0)
        return torch.zeros_like(x).index_add_(0, col, x[row] * x[back_row]) + x[back_col].sum()


class OfOthers(torch.nn.Module):
    """Features of all edges for those of one type, which are fewer in general."""

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        out = torch.zeros_like(x).index_add_(0, col, x[row] * edge_attr[:, :1])
        keep = row >= 0
        row, col = row[keep], col[keep]
        return out.index_add(0, col, x[row] * edge_attr[:, 1:2])


class BeforeTheirOrder(torch.nn.Module):
    """Features of edges in the order of the call for edges in another one, of two sets."""

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index[:, edge_index[0].argsort()]
        out = torch.zeros_like(x).index_add_(0, col, x[row] * edge_attr[:, :1])
        row, col = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        return out.index_add(0, col, x[row].tanh())


@pytest.mark.parametrize(
    ('kind', 'reason'),
    [
        (AtOnce, 'values of several sets of edges at once'),
        (OfOthers, 'values of several sets of edges at once'),
        (BeforeTheirOrder, 'values of edges before they are made anew'),
    ],
)
def test_a_value_of_two_sets_is_for_its_own_code(kind, reason):
    data = given()
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_attr')[: 2 if kind is AtOnce else 3]}
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason == reason


class OfAllEdges(torch.nn.Module):
    def forward(self, x, edge_index, edge_type):
        out = torch.zeros_like(x)
        for k in range(2):
            row, col = edge_index[:, edge_type == k]
            score = x[row].sum(-1)
            out = out.index_add(0, col, x[row] * (score - score.max()).exp()[:, None])
        return out


def test_what_is_of_all_edges_is_for_its_own_code():
    arguments = arguments_of(several.Relations, given())
    compiled = pygfuse.compile(OfAllEdges())
    torch.testing.assert_close(compiled(**arguments), OfAllEdges()(**arguments))
    assert compiled.note.reason == 'what is of all edges, of several sets of edges'


@pytest.mark.parametrize('whole', [False, True])
def test_within_torch_compile(whole):
    torch.manual_seed(0)
    kind, reason = several.OneBehindTheOther, 'torch compiles no several sets of edges' if whole else None
    assert_same_in_traces(kind(), arguments_of(kind, given()), reason, fullgraph=whole)


def test_an_explanation_says_each():
    torch.manual_seed(0)
    compiled = pygfuse.compile(several.Relations())
    compiled(**arguments_of(several.Relations, given()))
    assert str(pygfuse.explain(compiled)).count('walk') >= several.RELATIONS


def test_what_follows_attention_is_a_walk():
    """A softmax within what is gathered is none of the message that gathers it."""
    torch.manual_seed(0)
    compiled = pygfuse.compile(several.OneBehindTheOther())
    compiled(**arguments_of(several.OneBehindTheOther, given()))
    found = str(pygfuse.explain(compiled))
    assert found.count('\nwalk: ') == 2
    assert 'chunks' not in found
