"""Modules whose edges read values of other edges, as of those that lead back, and that are given an object."""

from __future__ import annotations

import copy
import dataclasses
import functools
import types

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_modules import OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_each_call_is_of_its_own_edges, assert_same, assert_same_in_traces, given


@dataclasses.dataclass(repr=False, eq=False)
class Molecules:
    """As chemprop has a batch of them."""

    x: torch.Tensor
    edge_index: torch.Tensor
    edge_attr: torch.Tensor
    back_edge_index: torch.Tensor
    name: str = 'molecules'

    def __len__(self):
        return 3

    @property
    def rows(self):
        return self.x.size(0)


@dataclasses.dataclass(repr=False, eq=False, slots=True)
class InSlots:
    x: torch.Tensor
    edge_index: torch.Tensor
    edge_attr: torch.Tensor
    back_edge_index: torch.Tensor
    missing: torch.Tensor = dataclasses.field(init=False)


class Plain:
    def __init__(self, *tensors):
        self.x, self.edge_index, self.edge_attr, self.back_edge_index = tensors
        self.others, self.seed = [object()], 3


def namespace(*tensors):
    return types.SimpleNamespace(**dict(zip(NAMES, tensors, strict=True)))


NAMES = 'x', 'edge_index', 'edge_attr', 'back_edge_index'


class States(nn.Module):
    """Directed message passing: an edge reads the states that come into its source, but for that of the edge back."""

    def __init__(self, depth=3):
        super().__init__()
        self.depth = depth
        self.begin, self.step = nn.Linear(WIDTH + OF_EDGES, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.end = nn.Linear(2 * WIDTH, WIDTH)

    def total(self, states, x, edge_index):
        index = edge_index[1].unsqueeze(1).repeat(1, states.shape[1])
        zeros = torch.zeros(len(x), states.shape[1], dtype=states.dtype, device=states.device)
        return zeros.scatter_reduce_(0, index, states, reduce='sum', include_self=False)

    def forward(self, x, edge_index, edge_attr, back):
        first = self.begin(torch.cat([x[edge_index[0]], edge_attr], dim=1))
        states = first.relu()
        for _ in range(1, self.depth):
            message = self.total(states, x, edge_index)[edge_index[0]] - states[back]
            states = (first + self.step(message)).relu()
        return self.end(torch.cat([x, self.total(states, x, edge_index)], dim=1)).relu()


class OfObject(States):
    def forward(self, batch):
        return super().forward(batch.x, batch.edge_index, batch.edge_attr, batch.back_edge_index)


class Both(States):
    """Both directions of an edge are averaged, by numbers that it makes; the states are returned."""

    def forward(self, x, edge_index, edge_attr, back):
        row, col = edge_index
        states = self.begin(torch.cat([x[row], edge_attr], dim=1)).tanh()
        states = (states + states[torch.arange(edge_attr.size(0)).flip(0)]) / 2
        states = self.step(x[col] * states.index_select(0, back)).tanh()
        return torch.zeros_like(x).index_add(0, col, states), states


class OfAttention(States):
    """Scores of other edges, and values of edges that a call brings."""

    def forward(self, x, edge_index, edge_attr, back):
        row, col = edge_index
        score = (self.step(x)[row] * x[col]).sum(dim=-1, keepdim=True).sigmoid()
        message = (score - score[back]) * x[row] + edge_attr[back].sum(dim=-1, keepdim=True)
        return torch.zeros_like(x).index_add(0, row, message)


class Message(MessagePassing):
    def __init__(self):
        super().__init__(aggr='max')
        self.lin = nn.Linear(WIDTH + OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr, back):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, back=back)

    def message(self, x_i, x_j, edge_attr, back):
        h = self.lin(torch.cat([x_j * x_i, edge_attr], dim=-1)).tanh()
        return h - h[back]


class OfNodes(States):
    """What nodes decide, which has a row for each edge where others read it."""

    def forward(self, x, edge_index, edge_attr, back):
        row, col = edge_index
        states = self.step(x)[row].relu()
        message = states - states[back] * x[col][back]
        return torch.zeros_like(x).index_add(0, col, message)


KINDS = [States, Both, OfAttention, OfNodes]


def arguments_of(data):
    edges = data['edge_index'].shape[1]
    back = torch.randperm(edges, generator=torch.Generator().manual_seed(1))
    return {**{name: data[name] for name in ('x', 'edge_index', 'edge_attr')}, 'back': back}


@pytest.mark.parametrize('kind', KINDS)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), arguments_of(given()))


def test_numbers_that_repeat_and_count_from_the_end():
    torch.manual_seed(0)
    arguments = arguments_of(given())
    assert_same(States(), {**arguments, 'back': arguments['back'] // 7 - 9})


@pytest.mark.parametrize('kind', KINDS)
def test_each_call_has_its_own_edges(kind):
    torch.manual_seed(0)
    assert_each_call_is_of_its_own_edges(kind(), arguments_of)


def test_messages_read_those_of_other_edges():
    torch.manual_seed(0)
    conv = Message()
    assert_as_pyg(conv, arguments_of(given()))
    assert conv.note.reason is None


@pytest.mark.parametrize('kind', KINDS)
def test_traces_of_them(kind):
    torch.manual_seed(0)
    assert_same_in_traces(kind(), arguments_of(given()))


def as_molecules(data, kind=Molecules):
    arguments = arguments_of(data)
    return {'batch': kind(*[arguments[name] for name in ('x', 'edge_index', 'edge_attr', 'back')])}


@pytest.mark.parametrize('kind', [Molecules, InSlots, Plain, namespace])
def test_an_object_with_attributes(kind):
    torch.manual_seed(0)
    module = OfObject()
    compiled = assert_each_call_is_of_its_own_edges(module, functools.partial(as_molecules, kind=kind))
    assert len(compiled.plans()) == 1
    plain, objects = States(), as_molecules(given())
    plain.load_state_dict(module.state_dict())
    torch.testing.assert_close(compiled(**objects), plain(**arguments_of(given())))


class Storing(OfObject):
    def forward(self, batch):
        batch.h = super().forward(batch)
        batch.note = None
        return batch.h if batch.note is None else batch.x


def test_what_is_stored_in_one():
    torch.manual_seed(0)
    module, theirs, ours = Storing(), *[as_molecules(given())['batch'] for _ in range(2)]
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(ours), module(theirs))
    assert compiled.note.reason is None
    torch.testing.assert_close(ours.h, theirs.h)
    assert ours.note is theirs.note is None


class Computing(OfObject):
    def forward(self, batch):
        return super().forward(batch) / batch.rows


class Counting(OfObject):
    def forward(self, batch):
        return super().forward(batch) / len(batch)


REASONS = {Computing: 'it reads rows of batch', Counting: 'it reads batch as a whole'}


class Proxy(Molecules):
    def __getattr__(self, name):
        raise AttributeError(name)


def test_attributes_that_are_computed_are_for_the_own_code():
    compiled = pygfuse.compile(OfObject())
    compiled(**as_molecules(given(), Proxy))
    assert compiled.note.reason == 'none of its arguments is an edge_index'


@pytest.mark.parametrize('kind', REASONS)
def test_what_a_dataclass_computes_is_for_the_own_code(kind):
    torch.manual_seed(0)
    module, arguments = kind(), as_molecules(given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason == REASONS[kind]


class Softmaxes(States):
    def forward(self, x, edge_index, edge_attr, back):
        row, col = edge_index
        share = softmax(self.begin(torch.cat([x[row], edge_attr], dim=-1)), col, num_nodes=x.size(0))
        return torch.zeros_like(x).index_add(0, col, x[row] * (share - share[back]))


def test_values_that_cannot_be_in_memory_are_for_the_own_code():
    torch.manual_seed(0)
    assert_same(
        Softmaxes(), arguments_of(given()), 'of_other_edges of what a softmax or a normalisation over edges gives'
    )
