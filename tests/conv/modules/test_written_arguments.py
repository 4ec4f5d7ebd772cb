"""Modules that write into their arguments: into the caller's tensors, once all is computed."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data

import pygfuse
from tests.compiler.own_modules import WIDTH
from tests.conv.modules.arguments import given


def add_up(x, index, values):
    return torch.zeros_like(x).index_add(0, index, values)


class Writing(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.score = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)


class Equivariant(Writing):
    """The first EGNN's layer: coordinates are moved in place."""

    def forward(self, x, edge_index, coord):
        row, col = edge_index
        difference = coord[row] - coord[col]
        message = F.silu(self.lin(x[row] * x[col]) + difference.square().sum(1, keepdim=True))
        coord += add_up(coord, col, difference * self.score(message))
        return add_up(x, col, message), coord


class Twice(Writing):
    """What is read after a write is what was written."""

    def forward(self, x, edge_index):
        row, col = edge_index
        before = x.tanh()
        x.mul_(0.5)
        x += add_up(x, col, self.lin(x[row]).relu())
        return before + add_up(x, col, x[row].sigmoid())


class OfEdges(Writing):
    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        edge_weight *= 2
        return add_up(x, col, edge_weight.unsqueeze(1) * self.lin(x)[row])


class OfData(Writing):
    def forward(self, data):
        row, col = data.edge_index
        data.x += add_up(data.x, col, self.lin(data.x[row]).relu())
        return data.x.exp()


class ThroughAView(Writing):
    def forward(self, x, edge_index):
        row, col = edge_index
        x.view(-1, WIDTH).mul_(2)
        return add_up(x, col, self.lin(x[row]).relu())


class AfterAView(Writing):
    """A view of an argument changes with it."""

    def forward(self, x, edge_index):
        row, col = edge_index
        half = x[:, : WIDTH // 2]
        x *= 2
        return add_up(half, col, half[row].sigmoid())


class AfterAFunction(Writing):
    """What functions make of a view of an argument may lie in its memory."""

    def forward(self, x, edge_index, edge_weight):
        row, col = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = torch.cat([edge_weight.view(-1), edge_weight.view(-1)])
        edge_weight *= -2
        return add_up(x, col, weight.unsqueeze(1) * self.lin(x[row]).relu())


def prepared(kind, seed=0):
    """A module's arguments, which are results of a function of leaves, and these leaves."""
    d = given(seed)
    names = {Equivariant: ('x', 'coord'), OfEdges: ('x', 'edge_weight'), AfterAFunction: ('x', 'edge_weight')}.get(
        kind, ('x',)
    )
    leaves = {name: d[name].double().requires_grad_() for name in names}
    arguments = {name: leaf * 1.0 for name, leaf in leaves.items()}
    if kind is OfData:
        return {'data': Data(arguments['x'], d['edge_index'])}, leaves
    return {**arguments, 'edge_index': d['edge_index']}, leaves


def outcome(module, kind, seed=0):
    """Results, what the arguments hold then, and gradients."""
    arguments, leaves = prepared(kind, seed)
    out = module(**arguments)
    out = out if isinstance(out, tuple) else (out,)
    held = arguments['data'].x if kind is OfData else tuple(arguments[name] for name in leaves)
    held = held if isinstance(held, tuple) else (held,)
    loss = sum(one.square().sum() for one in (*out, *held))
    return *out, *held, *torch.autograd.grad(loss, [*leaves.values(), *module.parameters()], allow_unused=True)


@pytest.mark.parametrize('kind', [Equivariant, Twice, OfEdges, OfData])
def test_numbers(kind):
    module = kind().double()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for seed in range(2):
        torch.testing.assert_close(outcome(compiled, kind, seed), outcome(module, kind, seed))
    assert compiled.note.reason is None


def test_the_argument_itself_is_returned():
    compiled = pygfuse.compile(Equivariant().double())
    arguments, _ = prepared(Equivariant)
    assert compiled(**arguments)[1] is arguments['coord']


def test_a_leaf_is_an_error_as_in_torch():
    d = given()
    x = d['x'].requires_grad_()
    for module in (Twice(), pygfuse.compile(Twice())):
        with pytest.raises(RuntimeError, match='a leaf Variable that requires grad'):
            module(x, d['edge_index'])


def test_what_others_saved_is_gone_as_in_torch():
    d = given()
    for module in (Twice(), pygfuse.compile(Twice())):
        x = d['x'].clone().requires_grad_()
        before = x.exp()
        with pytest.raises(RuntimeError, match='modified by an inplace operation'):
            module(before, d['edge_index']).sum().backward()


def test_memory_of_two_arguments():
    module = Equivariant()
    compiled, results = pygfuse.compile(copy.deepcopy(module)), []
    for one in (module, compiled):
        d = given()
        whole = torch.cat([d['x'], d['coord']], dim=1)
        out = one(whole[:, :WIDTH], d['edge_index'], whole[:, WIDTH:])
        results.append((*out, whole))
    torch.testing.assert_close(*results)
    assert compiled.note.reason == 'it writes into coord, whose memory another argument has'


OF_VIEWS = {
    ThroughAView: 'it writes into a tensor that something else may share',
    AfterAView: 'it reads a tensor after a write to another one that may share its memory',
    AfterAFunction: 'it writes into a tensor that something else may share',
}


@pytest.mark.parametrize('kind', OF_VIEWS)
def test_views_have_no_fused_form(kind):
    module = kind().double()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(outcome(compiled, kind), outcome(module, kind))
    assert compiled.note.reason == OF_VIEWS[kind]


def test_without_gradients_it_runs_its_own_code():
    module = Twice()
    compiled, results = pygfuse.compile(copy.deepcopy(module)), []
    with torch.no_grad():
        for one in (module, compiled):
            d = given()
            results.append((one(d['x'], d['edge_index']), d['x']))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize('kind', [Equivariant, Twice])
def test_between_traces(kind):
    torch._dynamo.reset()
    module = kind().double()
    compiled = pygfuse.compile(copy.deepcopy(module))
    expected = outcome(module, kind)
    found = outcome(torch.compile(compiled, backend='aot_eager'), kind)
    torch.testing.assert_close(found, expected)
