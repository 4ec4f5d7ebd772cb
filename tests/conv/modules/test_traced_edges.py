"""Modules that make edges anew while ``torch.compile`` traces them."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch

import pygfuse
from pygfuse.conv._layer.untraced import NOT_TRACED
from pygfuse.graph import orders, remade_edges
from pygfuse.mapping import few_edges
from tests.compiler import modules_of_chosen_edges as chosen
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules import test_chosen_edges, test_remade_edges
from tests.conv.modules.arguments import assert_same_in_traces, given

ARGUMENTS = {
    **{kind.__name__: (kind, lambda d, kind=kind: test_chosen_edges.arguments_of(kind, d)) for kind in (
        chosen.ByEnds, chosen.BothDirections, chosen.RowsOfBothDirections, chosen.LoopsBehind, chosen.LoopsOfRows,
        chosen.OfEnds, chosen.InOrder, chosen.WithoutGradients, chosen.OfTwoSets,
    )},
    **{name: test_remade_edges.ARGUMENTS[name] for name in ('Normalised', 'Attention', 'Undirected, weights')},
}  # fmt: skip
# of the others values decide how many edges there are
WHOLE = 'BothDirections', 'RowsOfBothDirections', 'LoopsBehind', 'LoopsOfRows', 'OfEnds', 'InOrder'
FAST = 'LoopsBehind', 'ByEnds'


@pytest.mark.parametrize('name', [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in ARGUMENTS])
def test_outputs_and_gradients_are_those_of_its_own_code(name):
    torch.manual_seed(0)
    kind, arguments_of = ARGUMENTS[name]
    assert_same_in_traces(kind(), arguments_of(given()), fullgraph=name in WHOLE)


@pytest.mark.parametrize('name', ['LoopsBehind', 'ByEnds'])
def test_a_trace_is_of_any_edges(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    kind, arguments_of = ARGUMENTS[name]
    module, traces = kind(), torch._dynamo.testing.CompileCounter()
    compiled = pygfuse.compile(copy.deepcopy(module))
    traced = torch.compile(compiled, backend=traces)
    for seed, (nodes, edges) in enumerate(((30, 200), (43, 110), (50, 300), (60, 310), (60, 310))):
        arguments = arguments_of(given(seed, nodes, edges))
        torch.testing.assert_close(traced(**arguments), module(**arguments))
        assert compiled.note.reason is None
    # what is returned is handed on by graphs of their own, of which there is one for each kind of sizes
    assert traces.frame_count <= (3 if name in WHOLE else 4)


class Branches(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        if (row == col).any():
            x = x * 2
        return torch.zeros_like(x).index_add_(0, col, x[row])


@pytest.mark.parametrize('kind', [Branches, chosen.ByEnds])
def test_what_values_decide_is_not_traced(kind, monkeypatch):
    torch._dynamo.reset()
    names = ('x', 'edge_index', 'edge_attr')[: 2 if kind is Branches else 3]
    arguments = {name: given()[name] for name in names}
    if kind is Branches:
        arguments['edge_index'] = torch.stack([torch.arange(20), torch.arange(20) + 1])
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(torch.compile(compiled, backend='aot_eager')(**arguments), module(**arguments))
    assert compiled.note.reason is None
    # where torch is told to trace what values decide, and where edges are few, its own code is
    torch._dynamo.reset()
    if kind is chosen.ByEnds:
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            traced = torch.compile(compiled, backend='aot_eager', fullgraph=True)
            torch.testing.assert_close(traced(**arguments), module(**arguments))
        assert 'of edges' in compiled.note.reason
    torch._dynamo.reset()
    monkeypatch.setattr(few_edges, 'MOST_OF_COMPILED', 10_000)
    torch.testing.assert_close(torch.compile(compiled, backend='aot_eager')(**arguments), module(**arguments))
    assert compiled.note.reason == few_edges.SO_FEW_EDGES


class WithoutGradients(torch.nn.Module):
    """Weights of both directions that no gradient reaches."""

    def forward(self, x, edge_index, edge_weight):
        row, col = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        with torch.no_grad():
            weight = torch.cat([edge_weight, -edge_weight])
        return torch.zeros_like(x).index_add_(0, col, x[row] * weight[:, None])


class Scaled(torch.nn.Module):
    """A weight that the module holds is a value of the edges that it makes, too."""

    def __init__(self):
        super().__init__()
        self.of_edges = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x, edge_index, edge_weight):
        loops = torch.arange(x.size(0))
        row, col = torch.cat([edge_index, loops.expand(2, -1)], dim=1)
        weight = torch.cat([edge_weight * self.of_edges, x.new_ones(x.size(0))])
        return torch.zeros_like(x).index_add_(0, col, x[row] * weight[:, None])


@pytest.mark.parametrize('kind', [Scaled, WithoutGradients])
def test_what_the_module_holds_and_what_has_no_gradients(kind):
    arguments = {name: given()[name] for name in ('x', 'edge_index', 'edge_weight')}
    assert_same_in_traces(kind(), arguments, fullgraph=True)


class TooFew(torch.nn.Module):
    """Weights of edges, but none of the loops that it puts behind them."""

    def forward(self, x, edge_index, edge_weight):
        row, col = torch.cat([edge_index, torch.arange(x.size(0)).repeat(2, 1)], dim=1)
        weight = edge_weight[edge_index[0] * 0 + torch.arange(edge_index.size(1))]
        return torch.zeros_like(x).index_add_(0, col, x[row] * weight[:, None])


def test_values_of_other_edges_are_an_error_of_its_own_code():
    torch._dynamo.reset()
    arguments = {name: given()[name] for name in ('x', 'edge_index', 'edge_weight')}
    for run in (TooFew(), torch.compile(pygfuse.compile(TooFew()), backend='aot_eager')):
        with pytest.raises(RuntimeError, match=r'must match the size|to broadcast a dimension'):
            run(**arguments)


def test_edges_that_a_trace_makes_are_sorted_once(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(remade_edges, 'FEWEST', 100)
    # layers of other tests may hold theirs
    monkeypatch.setattr(remade_edges, '_of_traces', weakref.WeakValueDictionary())
    sorts, build = [], orders.build
    monkeypatch.setattr(orders, 'build', lambda *arguments: sorts.append(arguments) or build(*arguments))
    module = chosen.LoopsBehind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    traced = torch.compile(compiled, backend='aot_eager')
    arguments = test_chosen_edges.arguments_of(chosen.LoopsBehind, given())
    found = []
    for turn in range(4):
        sorts.clear()
        # others of the same shape in between
        edges = arguments['edge_index'] if turn != 2 else arguments['edge_index'].flip(0)
        one = {**arguments, 'edge_index': edges}
        torch.testing.assert_close(traced(**one), module(**one))
        found.append(len(sorts) > 0)
    assert found == [True, True, True, False]
    met = remade_edges.of_traces()
    assert compiled.note.remade is met
    # nobody holds them once no such layer is left
    del compiled, traced, met
    torch._dynamo.reset()
    gc.collect()
    assert not [one for one in remade_edges._of_traces.values() if one._met]


def test_the_memory_of_edges_may_be_written_to():
    edge_index = torch.randint(9, (2, remade_edges.FEWEST))
    met = remade_edges.RemadeEdges(copies=True)
    met.known(edge_index)
    held = met.known(edge_index)
    before = edge_index.clone()
    # as a compiler does, of which no version tells
    edge_index.data.zero_()
    assert torch.equal(held, before)
    assert met.known(before) is held
    assert met.known(edge_index) is edge_index


class Propagated(torch.nn.Module):
    """Embeddings of nodes that it holds: no argument tells how many there are."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(NODES, WIDTH)

    def forward(self, edge_index):
        x, (row, col) = self.embedding.weight, torch.cat([edge_index, edge_index.flip(0)], dim=1)
        return x + torch.zeros_like(x).index_add_(0, col, x[row].tanh())


@pytest.mark.parametrize('whole', [False, True])
def test_a_call_that_tells_no_number_of_nodes(whole):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, edge_index = Propagated(), given()['edge_index']
    compiled = pygfuse.compile(copy.deepcopy(module))
    traced = torch.compile(compiled, backend='aot_eager', fullgraph=whole)
    outputs = [run(edge_index) for run in (module, traced)]
    torch.testing.assert_close(*outputs)
    gradients = [
        torch.autograd.grad(out.square().sum(), one.embedding.weight)
        for out, one in zip(outputs, (module, compiled), strict=True)
    ]
    torch.testing.assert_close(*gradients)
    assert compiled.note.reason == (NOT_TRACED if whole else None)
