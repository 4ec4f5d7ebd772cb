"""Reductions to another number of rows than there are targets."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import LayerNorm, Linear, SiLU
from torch_geometric.utils import degree, scatter

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

WIDTH, NODES, EDGES, LAST = 8, 20, 90, 12
REASON = 'a reduction to fewer rows than the targets of its edges'


class Receiving(Own):
    """Sums of messages for the first nodes alone, which receive them, and the messages; `size` is a tensor or a number.

    As weather models on meshes do, whose nodes that send stand behind those that receive.
    """

    def __init__(self, size, aggr='sum', more=None):
        super().__init__(aggr)
        self.size, self.more = size, more
        self.nn = torch.nn.Sequential(Linear(2 * WIDTH, WIDTH), SiLU(), Linear(WIDTH, WIDTH), LayerNorm(WIDTH))

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j], dim=-1))

    def aggregate(self, inputs, index, ptr):
        found = super().aggregate(inputs, index, ptr, self.size)
        return (found if self.more is None else self.more(found)), inputs


def given(last: int = LAST) -> dict[str, torch.Tensor]:
    edge_index = random_edges(NODES, last, EDGES)
    edge_index[1, 5] = last - 1
    return {'edge_index': edge_index, 'x': torch.randn(NODES, WIDTH)}


@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max'])
@pytest.mark.parametrize('size', [LAST, torch.tensor(LAST), NODES, torch.tensor(NODES + 4)], ids=str)
def test_outputs_and_gradients_are_those_of_pyg(size, aggr):
    torch.manual_seed(0)
    assert_as_pyg(Receiving(size, aggr), given())


def test_what_is_computed_of_them():
    torch.manual_seed(0)
    assert_as_pyg(Receiving(LAST, more=lambda found: found.tanh() * 2.0), given())


class Clamped(Own):
    def message(self, x_j, size_i):
        return x_j.clamp(max=size_i)


def test_a_number_of_rows_is_no_number():
    """What stands for it while a message is captured is another one."""
    conv = Clamped()
    x, edge_index = torch.full((NODES, WIDTH), 100.0), random_edges(NODES, NODES, EDGES)
    expected = conv(edge_index, x=x)
    pygfuse.compile(conv)
    assert torch.equal(conv(edge_index, x=x), expected)
    assert conv.note.reason == 'it computes with the number of edges or nodes'


class Draws(Own):
    def message(self, x_j):
        return x_j + torch.randn(x_j.size(0), 1)


def test_a_capture_draws_no_numbers():
    conv, x, edge_index = Draws(), torch.randn(NODES, WIDTH), random_edges(NODES, NODES, EDGES)
    torch.manual_seed(1)
    expected = conv(edge_index, x=x)
    pygfuse.compile(conv)
    torch.manual_seed(1)
    assert torch.equal(conv(edge_index, x=x), expected)
    assert conv.note.reason == 'randn of a number of edges or nodes'


def test_a_number_that_a_call_brings():
    class Sized(Own):
        def message(self, x_j):
            return x_j.tanh()

        def aggregate(self, inputs, index, count):
            return scatter(inputs, index, 0, count, 'sum')

    torch.manual_seed(0)
    assert_as_pyg(Sized(), {**given(), 'count': LAST + 1})


def test_sizes_that_change():
    conv = Receiving(torch.tensor(LAST))
    fused = pygfuse.compile(copy.deepcopy(conv))
    for size in (LAST, LAST + 1, NODES + 2, LAST):
        conv.size, fused.size = torch.tensor(size), torch.tensor(size)
        arguments = given()
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
        assert fused.note.reason is None
    conv.size, fused.size = LAST, LAST
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    conv.size, fused.size = LAST + 3, LAST + 3
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is None


@pytest.mark.parametrize('size', [LAST, torch.tensor(LAST)], ids=str)
def test_edges_to_targets_behind_the_last_row(size):
    conv = Receiving(size)
    fused = pygfuse.compile(copy.deepcopy(conv))
    fused(**given())
    for layer in (conv, fused):
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            layer(**given(LAST + 1))
    assert fused.note.reason == REASON
    arguments = given()
    torch.testing.assert_close(fused(**arguments), conv(**arguments))


class SoftmaxByHand(Own):
    """The sums over the edges of a target are read by edges; how many there are is an argument of its own."""

    def __init__(self):
        super().__init__()
        self.score = Linear(2 * WIDTH, 1)

    def message(self, x_i, x_j, index, count):
        weight = torch.tanh(self.score(torch.cat([x_i, x_j], dim=-1))).exp()
        total = (scatter(weight, index, 0, count, 'sum') + 1e-10).reciprocal()
        return weight * total[index] * x_j


@pytest.mark.parametrize('count', [LAST, NODES])
def test_rows_that_edges_read(count):
    torch.manual_seed(0)
    assert_as_pyg(SoftmaxByHand(), {**given(), 'count': count})


def test_rows_that_edges_read_and_do_not_exist():
    conv, arguments = SoftmaxByHand(), {**given(), 'count': LAST - 1}
    fused = pygfuse.compile(copy.deepcopy(conv))
    fused(**{**arguments, 'count': LAST})
    for layer in (conv, fused):
        with pytest.raises((RuntimeError, IndexError)):
            layer(**arguments)
    assert fused.note.reason == REASON


def test_such_rows_are_not_read_by_sources():
    class OfSources(SoftmaxByHand):
        def message(self, x_j, edge_index, index, count):
            return x_j * scatter(x_j.tanh(), index, 0, count, 'sum')[edge_index[0]]

    torch.manual_seed(0)
    conv, arguments = OfSources(), {**given(), 'count': NODES}
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason == 'an index by values'


def test_torch_compile_of_rows_that_edges_read():
    conv, arguments = SoftmaxByHand(), {**given(), 'count': NODES}
    fused = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='eager', fullgraph=True)
    torch.testing.assert_close(fused(**arguments), conv(**arguments))


def test_combinations_with_values_of_targets_are_refused():
    class Added(Receiving):
        def aggregate(self, inputs, index, dim_size):
            return scatter(inputs, index, 0, self.size, 'sum') + scatter(inputs, index, 0, dim_size, 'mean')

    conv, arguments = Added(NODES), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason == 'add of values of edges and of nodes'


@pytest.mark.parametrize('num_sources', [NODES, NODES + 3])
def test_numbers_of_sources_and_targets_that_are_compared(num_sources):
    class Compared(Own):
        def message(self, x_j, size_i, size_j):
            return x_j.tanh() if size_i == size_j else x_j.relu()

    conv, edge_index = Compared(), random_edges(num_sources, NODES, EDGES)
    fused = pygfuse.compile(copy.deepcopy(conv))
    x = torch.randn(num_sources, WIDTH), torch.randn(NODES, WIDTH)
    torch.testing.assert_close(fused(edge_index, x=x), conv(edge_index, x=x))
    assert fused.note.reason == 'it computes with the number of edges or nodes'


def test_degrees_for_as_many_rows_as_sources():
    class Counted(Own):
        def message(self, x_j):
            return x_j.tanh()

        def aggregate(self, inputs, index, dim_size, size_j):
            return scatter(inputs, index, 0, dim_size, 'sum'), degree(index, size_j)

    conv, edge_index = Counted(), random_edges(NODES + 3, NODES, EDGES)
    fused = pygfuse.compile(copy.deepcopy(conv))
    x = torch.randn(NODES + 3, WIDTH), torch.randn(NODES, WIDTH)
    torch.testing.assert_close(fused(edge_index, x=x), conv(edge_index, x=x))
    assert fused.note.reason == 'degrees that are read at the other ends, which are other nodes'


def test_it_runs_between_two_traces():
    conv, arguments = Receiving(NODES + 600), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(torch.compile(fused, backend='eager')(**arguments), conv(**arguments))
    assert fused.note.reason is None
