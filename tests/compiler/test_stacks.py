"""Several features of nodes and edges in one tensor, before the dimension of rows, as weather models have batches."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import LayerNorm, Linear, SiLU

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, DIM, NODES, EDGES = 8, 4, 20, 90


class Interaction(Own):
    """A network on both ends and features of edges, reduced and returned."""

    def __init__(self, aggr='sum', size=None):
        super().__init__(aggr)
        self.size, width = size, 2 * WIDTH + DIM
        self.nn = torch.nn.Sequential(Linear(width, WIDTH), SiLU(), Linear(WIDTH, WIDTH), LayerNorm(WIDTH))

    def message(self, x_i, x_j, edge_attr):
        return self.nn(torch.cat((edge_attr, x_j, x_i), dim=-1))

    def aggregate(self, inputs, index, ptr, dim_size):
        return super().aggregate(inputs, index, ptr, dim_size if self.size is None else self.size), inputs


class Weighed(Own):
    def message(self, x_j, edge_attr, edge_weight):
        return torch.tanh(x_j) * edge_attr * edge_weight.view(-1, 1)


def given(count: int = 3, num_nodes: int = NODES, num_edges: int = EDGES, dim: int = DIM) -> dict[str, torch.Tensor]:
    x, edge_attr = torch.randn(count, num_nodes, WIDTH), torch.randn(count, num_edges, dim)
    return {'edge_index': random_edges(num_nodes, num_nodes, num_edges), 'x': x, 'edge_attr': edge_attr}


@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max'])
@pytest.mark.parametrize('count', [1, 3])
def test_outputs_and_gradients_are_those_of_pyg(count, aggr):
    torch.manual_seed(0)
    assert_as_pyg(Interaction(aggr), given(count))


class Updated(Interaction):
    """What ``update`` is given has all dimensions."""

    def update(self, inputs, x):
        return inputs[0] + x, inputs[1]


class Channelwise(Own):
    """Each channel alone: copies are walked side by side."""

    def message(self, x_i, x_j, edge_weight):
        return edge_weight.view(-1, 1) * torch.relu(x_i - x_j)


class WithChannels(Own):
    """A parameter for each channel, which is another one beside other copies."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(WIDTH))

    def message(self, x_i, x_j):
        return ((x_i - x_j) * self.scale).relu()


@pytest.mark.parametrize('count', [1, 3, 70])
@pytest.mark.parametrize(('kind', 'is_side_by_side'), [(Channelwise, True), (WithChannels, False)])
def test_copies_side_by_side(kind, is_side_by_side, count):
    torch.manual_seed(0)
    arguments = {**given(count), 'edge_weight': torch.rand(EDGES)}
    del arguments['edge_attr']
    conv = kind()
    assert_as_pyg(conv, arguments)
    (plan, *_) = conv.plans()
    assert (plan.of_width(2 * WIDTH) is not None) == is_side_by_side


def test_copies_with_features_of_edges_are_walked_one_after_the_other():
    torch.manual_seed(0)
    arguments = {**given(dim=WIDTH), 'edge_weight': torch.rand(EDGES)}
    assert_as_pyg(Weighed(), arguments)


def of_batches_and_times(batch: int = 2, times: int = 3) -> dict[str, torch.Tensor]:
    arguments = given(batch * times)
    return {k: x if k == 'edge_index' else x.unflatten(0, (batch, times)) for k, x in arguments.items()}


@pytest.mark.parametrize('kind', [Interaction, Updated])
def test_several_dimensions_before_that_of_rows(kind):
    torch.manual_seed(0)
    assert_as_pyg(kind(), of_batches_and_times())


@pytest.mark.parametrize('name', ['SimpleConv', 'ChebConv', 'ARMAConv', 'SignedConv'])
def test_layers_of_pyg_that_take_them(name):
    torch.manual_seed(0)
    given = of_batches_and_times()
    del given['edge_attr']
    conv = {
        'SimpleConv': lambda: pyg.SimpleConv('mean'),
        'ChebConv': lambda: pyg.ChebConv(WIDTH, WIDTH, 3),
        'ARMAConv': lambda: pyg.ARMAConv(WIDTH, WIDTH, num_stacks=2),
        'SignedConv': lambda: pyg.SignedConv(WIDTH, WIDTH, True),
    }[name]()
    if name == 'ARMAConv':
        # its stacks are a dimension, too
        given['x'] = given['x'][:, :1]
    if name == 'SignedConv':
        given |= {'pos_edge_index': given['edge_index'], 'neg_edge_index': given.pop('edge_index').flip(0)}
    assert_as_pyg(conv, given)


def test_dimensions_of_edges_that_are_those_of_all():
    class Added(Own):
        def message(self, x_j, edge_attr):
            return x_j.tanh() * edge_attr.sum(dim=-1, keepdim=True)

    conv, arguments = Added(), of_batches_and_times()
    arguments['edge_attr'] = arguments['edge_attr'][:1]
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is not None


def test_dimensions_in_another_order_raise_as_in_pyg():
    conv, arguments = Interaction(), of_batches_and_times()
    fused = pygfuse.compile(copy.deepcopy(conv))
    arguments['edge_attr'] = arguments['edge_attr'].transpose(0, 1)
    for layer in (conv, fused):
        with pytest.raises(RuntimeError):
            layer(**arguments)


def test_features_of_edges_of_many_dimensions():
    class Tensors(Own):
        def message(self, x_j, blocks):
            return x_j * blocks.sum(dim=(1, 2, 3)).unsqueeze(-1)

    torch.manual_seed(0)
    arguments = {'edge_index': random_edges(NODES, NODES, EDGES), 'x': torch.randn(NODES, WIDTH)}
    assert_as_pyg(Tensors(), {**arguments, 'blocks': torch.randn(EDGES, 2, 3, 4)})


def test_no_batch():
    conv, arguments = Weighed(), of_batches_and_times()
    fused = pygfuse.compile(copy.deepcopy(conv))
    arguments = {k: x if k == 'edge_index' else x[:0] for k, x in arguments.items()}
    arguments = {**arguments, 'edge_attr': torch.randn(0, 3, EDGES, WIDTH), 'edge_weight': torch.rand(EDGES)}
    torch.testing.assert_close(fused(**arguments), conv(**arguments))


@pytest.mark.usefixtures('at_once')
def test_few_edges():
    torch.manual_seed(0)
    assert_as_pyg(Interaction(), given())


def test_another_number_of_rows():
    torch.manual_seed(0)
    assert_as_pyg(Interaction(size=NODES + 2), given())


def test_weights_that_are_those_of_all():
    torch.manual_seed(0)
    assert_as_pyg(Weighed(), {**given(dim=WIDTH), 'edge_weight': torch.rand(EDGES)})


def test_calls_of_other_sizes():
    torch.manual_seed(0)
    conv = Interaction()
    fused = pygfuse.compile(copy.deepcopy(conv))
    # as many as nodes, and as many as edges, are in one tensor once
    for sizes in ((3, 20, 90), (3, 20, 90), (3, 25, 70), (2, 20, 90), (20, 20, 90), (9, 20, 9), (3, 20, 90)):
        arguments = given(*sizes)
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
        assert fused.note.reason is None


@pytest.mark.parametrize('name', ['x', 'edge_attr'])
def test_features_of_which_there_are_others(name):
    """torch concatenates no tensors of different sizes: PyG's error is that of the fused layer."""
    conv, arguments = Interaction(), given()
    arguments[name] = arguments[name][:2]
    for layer in (conv, pygfuse.compile(copy.deepcopy(conv))):
        with pytest.raises(RuntimeError, match='Sizes of tensors must match'):
            layer(**arguments)


def test_features_of_other_edges():
    conv = Interaction()
    fused, arguments = pygfuse.compile(copy.deepcopy(conv)), given()
    # the third call is one that is known
    fused(**arguments), fused(**arguments)
    arguments['edge_attr'] = arguments['edge_attr'][:, 1:]
    for layer in (conv, fused):
        with pytest.raises(RuntimeError, match='Sizes of tensors must match'):
            layer(**arguments)


def test_features_of_edges_that_are_those_of_all():
    conv, arguments = Interaction(), given()
    arguments['edge_attr'] = arguments['edge_attr'][0]
    for layer in (conv, pygfuse.compile(copy.deepcopy(conv))):
        with pytest.raises(RuntimeError, match='same number of dimensions'):
            layer(**arguments)


@pytest.mark.parametrize('dim', [1, 2])
def test_dimensions_that_are_counted_from_the_first(dim):
    class Counted(Own):
        def message(self, x_i, x_j):
            return torch.cat([x_i, x_j], dim=dim)[:, : x_i.size(1)]

    conv, arguments = Counted(), given()
    del arguments['edge_attr']
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is not None


def test_what_is_stored_is_refused():
    class Stored(Own):
        def message(self, x_i, x_j):
            self.seen = (x_i - x_j).tanh()
            return self.seen

    conv, arguments = Stored(), given()
    del arguments['edge_attr']
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    torch.testing.assert_close(fused.seen, conv.seen)
    assert fused.note.reason == 'values that are stored of features of more than two dimensions'


def test_torch_compile_without_a_graph_break():
    conv, arguments = Channelwise(), {**given(), 'edge_weight': torch.rand(EDGES)}
    del arguments['edge_attr']
    fused = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='eager', fullgraph=True)
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is None


def test_torch_compile():
    conv, arguments = Interaction(), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(torch.compile(fused, backend='eager')(**arguments), conv(**arguments))
