"""Modules that are given edges in several arguments."""

from __future__ import annotations

import contextlib

import pytest
import torch

import pygfuse
from pygfuse.conv._layer.untraced import NOT_TRACED
from pygfuse.graph.graph import Graph
from pygfuse.mapping import few_edges
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from tests.compiler import modules_of_several_arguments as several
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, assert_same_in_traces, given

# the edges of both arguments
GRAPHS = {
    'any': lambda: (given()['edge_index'], given()['others']),
    'repeated edges': lambda: (torch.randint(4, (2, 150)), torch.randint(6, (2, 70))),
    'isolated nodes': lambda: (torch.randint(3, 9, (2, 60)), torch.randint(5, 12, (2, 90))),
    'self-loops alone': lambda: (torch.arange(NODES).repeat(2, 2), torch.arange(NODES).repeat(2, 3)),
    'int32': lambda: (given()['edge_index'].int(), given()['others'].int()),
}


def data_of(edge_index, others):
    data = given(edges=edge_index.shape[1])
    return {**data, 'edge_index': edge_index, 'others': others, 'of_others': torch.randn(others.shape[1], OF_EDGES)}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('kind', several.ARGUMENTS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind, graph):
    torch.manual_seed(0)
    assert_same(kind(), several.ARGUMENTS[kind](data_of(*GRAPHS[graph]())))


@pytest.mark.parametrize('kind', several.ARGUMENTS)
def test_each_call_has_its_own_edges(kind):
    torch.manual_seed(0)
    compiled = assert_each_call_is_of_its_own_edges(kind(), several.ARGUMENTS[kind])
    assert len(compiled.plans()) == 1


@pytest.mark.parametrize('empty', [0, 1])
def test_an_argument_without_edges(empty):
    torch.manual_seed(0)
    edges = [given()['edge_index'], given()['others']]
    edges[empty] = edges[empty][:, :0]
    assert_same(several.Signed(), several.ARGUMENTS[several.Signed](data_of(*edges)))


def test_arguments_without_edges():
    none = torch.zeros(2, 0, dtype=torch.long)
    assert_same(several.Signed(), several.ARGUMENTS[several.Signed](data_of(none, none)), 'there are no edges')


def test_its_name_is_logged(caplog):
    pygfuse.fuse(torch.nn.ModuleList([several.Signed()]))
    assert 'modules that take edges (Signed)' in caplog.text


def test_as_many_edges_as_nodes():
    torch.manual_seed(0)
    assert_same(
        several.Links(),
        several.ARGUMENTS[several.Links](data_of(given()['edge_index'], torch.randint(NODES, (2, NODES)))),
    )


def test_values_of_which_edges_is_not_said():
    """Of two arguments of as many edges the values are those of the first, or the module's own code runs."""
    torch.manual_seed(0)
    edge_index, others = given()['edge_index'], given()['others'][:, : given()['edge_index'].shape[1]]
    data = data_of(edge_index, others)
    reason = 'values of several sets of edges at once'
    assert_same(several.Signed(), several.ARGUMENTS[several.Signed](data))
    assert_same(several.TwoHops(), several.ARGUMENTS[several.TwoHops](data), reason)


def test_values_of_as_many_edges_of_the_one_or_the_other():
    """In one call they have as many rows as the first edges, in the next one as many as others."""
    torch.manual_seed(0)
    compiled, module = pygfuse.compile(Weighed()), Weighed()
    for counts in ((60, 40), (40, 60), (60, 40)):
        edges = [torch.randint(NODES, (2, count)) for count in counts]
        arguments = {'x': torch.randn(NODES, 8), 'edge_index': edges[0], 'far_edge_index': edges[1]}
        arguments |= {'weight': torch.rand(60), 'is_far': counts[1] == 60}
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
        assert compiled.note.reason is None


def test_values_of_the_wrong_edges():
    """They are an error of torch's, also where a plan knows such a call but for whose they are."""
    torch.manual_seed(0)
    compiled = pygfuse.compile(Weighed())
    for counts in ((60, 40), (40, 60)):
        edges = [torch.randint(NODES, (2, count)) for count in counts]
        given = {'x': torch.randn(NODES, WIDTH), 'edge_index': edges[0], 'far_edge_index': edges[1]}
        raised = (
            contextlib.nullcontext() if counts[0] == 60 else pytest.raises(RuntimeError, match='must match the size')
        )
        with raised:
            compiled(**given, weight=torch.rand(60), is_far=False)


def test_few_of_the_first_argument(monkeypatch):
    """That edges are few is said of those of all arguments."""
    monkeypatch.setattr(few_edges, 'MOST_OF_A_MODULE', 100)
    torch.manual_seed(0)
    compiled, x = pygfuse.compile(several.Signed()), torch.randn(NODES, WIDTH)
    reasons = []
    for counts in ((40, 50), (40, 90), (90, 40)):
        edges = [torch.randint(NODES, (2, count)) for count in counts]
        compiled(x, *edges)
        reasons.append(compiled.note.reason)
    assert reasons == [SO_FEW_EDGES, None, None]


class Weighed(torch.nn.Module):
    def forward(self, x, edge_index, far_edge_index, weight, is_far):
        near, far = edge_index, far_edge_index
        of_near, of_far = (
            (x[near[0]], x[far[0]] * weight[:, None]) if is_far else (x[near[0]] * weight[:, None], x[far[0]])
        )
        out = torch.zeros_like(x).index_add_(0, near[1], of_near)
        return out.index_add(0, far[1], of_far * 2)


def test_nodes_that_are_not_there():
    torch.manual_seed(0)
    data = given()
    compiled = pygfuse.compile(several.Signed())
    compiled(**several.ARGUMENTS[several.Signed](data))
    data['others'] = torch.where(data['others'] == 3, NODES, data['others'])
    with pytest.raises(IndexError):
        compiled(**several.ARGUMENTS[several.Signed](data))


class Between(torch.nn.Module):
    """Links between users and films that are there, and others that are scored."""

    def forward(self, users, films, edge_index, edge_label_index):
        row, col = edge_index
        films = films + torch.zeros_like(films).index_add_(0, col, users[row])
        return (users[edge_label_index[0]] * films[edge_label_index[1]]).sum(dim=-1)


def test_nodes_of_two_sets():
    torch.manual_seed(0)
    edges = [torch.stack([torch.randint(20, (count,)), torch.randint(35, (count,))]) for count in (150, 70)]
    arguments = {'users': torch.randn(20, 8), 'films': torch.randn(35, 8)}
    assert_same(Between(), {**arguments, 'edge_index': edges[0], 'edge_label_index': edges[1]})


class Unread(torch.nn.Module):
    """What is of all edges, which no module of several sets has, beside an argument that is not read."""

    def forward(self, x, edge_index, far_edge_index=None, of_others=None):
        row, col = edge_index
        score = (x[row] * x[col]).sum(dim=-1)
        return torch.zeros_like(x).index_add_(0, col, x[row] * (score - score.max()).exp()[:, None])


def test_an_argument_that_is_not_read():
    torch.manual_seed(0)
    assert_same(Unread(), several.ARGUMENTS[several.OfOne](given()))


class Mixed(torch.nn.Module):
    """Features of the edges of one argument for those of the other, which are as many here."""

    def forward(self, x, edge_index, far_edge_index, of_others):
        row, col = edge_index
        return (
            torch.zeros_like(x).index_add_(0, col, x[row] * of_others[: row.shape[0], :1]) + x[far_edge_index[0]].mean()
        )


def test_values_of_one_argument_for_the_edges_of_another():
    torch.manual_seed(0)
    arguments = several.ARGUMENTS[several.OfOne](given())
    compiled = pygfuse.compile(Mixed())
    torch.testing.assert_close(compiled(**arguments), Mixed()(**arguments))
    assert compiled.note.reason is not None


def test_other_indices_are_no_edges():
    """Two rows of integers by a name that says nothing of edges."""

    class Labelled(torch.nn.Module):
        def forward(self, x, edge_index, labels):
            row, col = edge_index
            return torch.zeros_like(x).index_add_(0, col, x[row]) + labels.sum()

    assert_same(Labelled(), {'x': given()['x'], 'edge_index': given()['edge_index'], 'labels': torch.ones(2, 3).long()})


@pytest.mark.parametrize('whole', [False, True])
def test_within_torch_compile(whole):
    torch.manual_seed(0)
    reason = NOT_TRACED if whole else None
    assert_same_in_traces(several.Links(), several.ARGUMENTS[several.Links](given()), reason, fullgraph=whole)


def test_edges_are_sorted_once_for_each_argument(monkeypatch):
    """The tensors of both arguments are the keys by which their graphs are found again."""
    torch.manual_seed(0)
    arguments = several.ARGUMENTS[several.Signed](given(edges=40_000))
    compiled = pygfuse.compile(several.Signed())
    compiled(**arguments)
    met, original = [], Graph.of

    def of(adjacency, *others):
        met.append(adjacency)
        return original(adjacency, *others)

    monkeypatch.setattr(Graph, 'of', staticmethod(of))
    compiled(**arguments)
    assert {id(one) for one in met} == {id(arguments['pos_edge_index']), id(arguments['neg_edge_index'])}
