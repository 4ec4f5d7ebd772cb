"""Sums of multiples and of sums are taken apart where that leaves a program or a network."""

from __future__ import annotations

import pytest
import torch
from torch.nn import LayerNorm, Linear, Parameter, ReLU, Sequential

import pygfuse
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.ir.values import value
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.passes import MORE_PASSES
from pygfuse.compiler.passes.sums_apart import sums_taken_apart
from pygfuse.compiler.refusal import Refused
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.compiler.support import check, edge, on_edges, shared, source, target
from tests.support.parity import GRAPHS


def summed(message, reduce='sum'):
    return value('reduce', message, reduce=reduce)


@pytest.mark.parametrize('reduce', ['sum', 'mean'])
@pytest.mark.parametrize('op', ['mul', 'div'])
def test_what_multiplies_all_edges_goes_behind(op, reduce):
    for factor in (0.5, shared(4)):
        found = check(sums_taken_apart, summed(value(op, edge(4), factor), reduce))
        assert found.op == op
        assert not on_edges(found, op)
    assert check(sums_taken_apart, summed(value('mul', 0.5, edge(4)))).op == 'mul'
    assert check(sums_taken_apart, summed(value('neg', edge(4)))).op == 'neg'


def test_what_edges_divide_stays():
    output = summed(value('div', 2.0, value('exp', edge(4))))
    assert sums_taken_apart(output) is output


@pytest.mark.parametrize('op', ['add', 'sub'])
@pytest.mark.parametrize('side', [source, target])
def test_values_of_nodes_are_summed_by_themselves(op, side):
    found = check(sums_taken_apart, summed(value(op, value('tanh', edge(4)), side(4)), 'mean'))
    assert [node.op for node in found.parents()] == ['reduce', 'reduce']


@pytest.mark.parametrize(
    'output',
    [
        summed(value('mul', edge(4), 0.5), 'max'),
        summed(value('add', value('tanh', edge(4)), edge(4))),
        summed(value('add', value('tanh', edge(4)), source(1))),
        summed(value('mul', value('tanh', edge(1)), shared(4))),
        value('mul', edge(4), 0.5),
    ],
)
def test_the_rest_stays(output):
    assert sums_taken_apart(output) is output


class Residual(Own):
    """Sources, and a network of both ends that is added to them, scaled channel by channel."""

    def __init__(self, aggr='sum'):
        super().__init__(aggr)
        self.nn = Sequential(Linear(16, 16), LayerNorm(16), ReLU(), Linear(16, 8), ReLU())
        self.scale = Parameter(torch.full((8,), 0.1))

    def message(self, x_i, x_j):
        return x_j - self.scale * self.nn(torch.cat([x_i, x_j], dim=-1)) / 2


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges', 'bipartite, more targets'])
@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max'])
def test_outputs_and_gradients_are_those_of_pyg(aggr, graph):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    conv, given = Residual(aggr), {'edge_index': example.edge_index, 'x': example.x(8)}
    assert_as_pyg(conv, given)
    (plan,) = conv.plans()
    kinds = {type(form).__name__ for form in plan.walks.values()}
    assert kinds == {'Walk', 'Network'}
    assert ('after sums_taken_apart' in str(pygfuse.explain(conv))) == (aggr != 'max')
    assert plan.chunked_reductions == 0


def test_another_plan_that_is_refused_takes_none_away(monkeypatch):
    def refused(output):
        raise Refused('for the test')

    monkeypatch.setitem(MORE_PASSES, 'sums_taken_apart', refused)
    example = GRAPHS['random']()
    conv = pygfuse.compile(Residual())
    conv(example.edge_index, x=example.x(8))
    assert conv.note.reason is None
    assert [type(form) for plan in conv.plans() for form in plan.walks.values()] == [Walk, Network]
