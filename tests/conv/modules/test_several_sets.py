"""Modules that read several sets of edges."""

from __future__ import annotations

import copy

import pytest
import torch

import pygfuse
from tests.compiler import modules_of_several_sets as several
from tests.compiler.own_modules import NODES
from tests.conv.modules.arguments import assert_same, given
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
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for seed, (nodes, edges) in enumerate(((30, 200), (43, 110), (30, 200))):
        arguments = arguments_of(kind, given(seed, nodes, edges))
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


def test_a_set_without_edges_is_for_its_own_code():
    module, data = several.Relations(), given()
    data['edge_type'].clamp_(max=2)
    compiled = pygfuse.compile(copy.deepcopy(module))
    arguments = arguments_of(several.Relations, data)
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason == 'there are no edges'
    arguments['edge_type'][:20] = 3
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None


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


@pytest.mark.parametrize('kind', [AtOnce, OfOthers])
def test_a_value_of_two_sets_is_for_its_own_code(kind):
    data = given()
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_attr')[: 3 if kind is OfOthers else 2]}
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason == 'values of several sets of edges at once'


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
    torch._dynamo.reset()
    torch.manual_seed(0)
    kind = several.OneBehindTheOther
    module, arguments = kind(), arguments_of(kind, given())
    reference = parity.results(copy.deepcopy(module).double(), arguments, torch.float64, 0)
    compiled = pygfuse.compile(module).double()
    traced = torch.compile(compiled, backend='aot_eager', fullgraph=whole)
    found = parity.results(traced, arguments, torch.float64, 0)
    parity.assert_close({key.replace('_orig_mod.', ''): value for key, value in found.items()}, reference)
    assert compiled.note.reason == ('torch compiles no several sets of edges' if whole else None)


def test_an_explanation_says_each():
    torch.manual_seed(0)
    compiled = pygfuse.compile(several.Relations())
    compiled(**arguments_of(several.Relations, given()))
    assert str(pygfuse.explain(compiled)).count('walk') >= several.RELATIONS
