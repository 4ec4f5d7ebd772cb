"""Modules that gather and reduce along edges themselves: compiled whole, with the numbers of their own code."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch_geometric.utils import scatter

import pygfuse
from pygfuse import compiler
from pygfuse.compiler.functions.dropouts import check_taken_once
from pygfuse.compiler.ir.values import leaf, value
from pygfuse.memory import saved_bytes
from tests.compiler import own_modules as own
from tests.compiler.own_modules import EDGES, NODES, WIDTH
from tests.conv.modules.arguments import MODULES, arguments_of, assert_same, given


@pytest.mark.parametrize('kind', MODULES, ids=lambda kind: kind.__name__)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), arguments_of(kind, given()))


GRAPHS = {
    'isolated nodes': lambda: torch.tensor([[3, 3, 4, 9], [4, 9, 4, 3]]),
    'hub': lambda: torch.stack([torch.arange(200) % NODES, torch.full((200,), 7)]),
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'self-loops': lambda: torch.arange(NODES).repeat(2, 3),
    'int32': lambda: torch.randint(NODES, (2, EDGES), dtype=torch.int32),
    'not contiguous': lambda: torch.randint(NODES, (EDGES, 2)).t(),
}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize(
    'kind',
    [own.Equivariant, own.Attention, own.Normalised, own.Scores, own.Extremes, own.Constants, own.Both],
    ids=lambda k: k.__name__,
)
def test_graphs_of_any_shape(kind, graph):
    torch.manual_seed(0)
    edge_index = GRAPHS[graph]()
    data = {**given(edges=edge_index.shape[1]), 'edge_index': edge_index}
    assert_same(kind(), arguments_of(kind, data))


@pytest.mark.parametrize('options', [{'attention': False}, {'normalize': True}, {'mean': False, 'tanh': True}])
def test_options_of_an_equivariant_layer(options):
    torch.manual_seed(0)
    data = given()
    # of a self-loop rounding is divided by next to nothing
    data['edge_index'][1] = (data['edge_index'][0] + 1 + torch.arange(EDGES) % 7) % NODES
    assert_same(own.Equivariant(**options), arguments_of(own.Equivariant, data))


def test_dropout_of_nodes_and_of_weights_is_drawn_in_each_call():
    torch.manual_seed(0)
    module, arguments = own.Attention(dropout=0.5), arguments_of(own.Attention, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    first, again = compiled(**arguments)[0], compiled(**arguments)[0]
    assert compiled.note.reason is None
    assert not torch.equal(first, again)
    # its mean is what the layer gives without dropout
    mean = torch.stack([compiled(**arguments)[0] for _ in range(3000)]).mean(0)
    theirs = torch.stack([module(**arguments)[0] for _ in range(3000)])
    error = 6 * theirs.std(0) / theirs.shape[0] ** 0.5 + 1e-3
    assert ((mean - theirs.mean(0)).abs() < 2 * error).all()
    torch.testing.assert_close(compiled.eval()(**arguments)[0], module.eval()(**arguments)[0])


def test_statistics_of_nodes_move_once():
    torch.manual_seed(0)
    module, arguments = own.Recurrent(), arguments_of(own.Recurrent, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(3):
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None
    assert compiled.norm.num_batches_tracked == 3
    torch.testing.assert_close(compiled.norm.running_var, module.norm.running_var)
    torch.testing.assert_close(compiled.eval()(**arguments), module.eval()(**arguments))


class Dropouts(torch.nn.Module):
    def forward(self, x, edge_index):
        first, second = (torch.nn.functional.dropout(x, 0.5) for _ in range(2))
        summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return first - second, summed


def test_dropouts_of_the_same_are_two():
    arguments = arguments_of(Dropouts, given())
    compiled = pygfuse.compile(Dropouts())
    assert compiled(**arguments)[0].abs().sum() > 0
    assert compiled.note.reason is None


def test_what_is_drawn_twice_is_refused():
    x = leaf('x', 'target', (4,), torch.float32)
    first, second = (value('dropout_of_nodes', x, p=0.5) for _ in range(2))
    check_taken_once([first, x], first)
    with pytest.raises(compiler.Refused, match='taken twice'):
        check_taken_once([first, second], first)


class Stores(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        score = (x[row] * x[col]).sum(-1)
        self.weights = torch.softmax(score.view(-1, 1), dim=-1) * score.sigmoid().unsqueeze(1)
        return torch.zeros_like(x).index_add(0, col, x[row] * self.weights)


def test_what_a_module_stores_is_there():
    module, arguments = Stores(), arguments_of(Stores, given())
    compiled = assert_same(module, arguments)
    module(**arguments)
    torch.testing.assert_close(compiled.weights, module.weights)


class Largest(torch.nn.Module):
    def forward(self, x, edge_index):
        score = x[edge_index[0]] + x[edge_index[1]]
        return torch.zeros_like(x).index_add(0, edge_index[1], score - score.max())


def test_the_largest_score_may_be_below_zero():
    """Though a target without edges has zeros."""
    assert_same(Largest(), {'x': -1 - torch.rand(NODES, WIDTH), 'edge_index': torch.randint(NODES - 5, (2, EDGES))})


def test_bytes_that_are_kept_grow_with_nodes():
    """Of the states of edges nothing is kept but what is given and what is returned."""
    torch.manual_seed(0)
    for kind in (own.Mean, own.Attention, own.Extremes, own.Normalised):
        compiled, kept = pygfuse.compile(kind()), []
        for edges in (2000, 4000):
            arguments = arguments_of(kind, given(edges=edges))
            tensors = [
                item for value in arguments.values() for item in (value if isinstance(value, tuple) else (value,))
            ]
            tensors = [item for item in tensors if isinstance(item, torch.Tensor)]
            tensors[0].requires_grad_()
            compiled(**arguments)
            call = functools.partial(compiled, **arguments)
            kept.append(saved_bytes(call, exclude=[*tensors, *compiled.parameters()]))
        few = 2000 * 4 * (1 if kind is own.Normalised else 0)
        assert kept[1] - kept[0] <= few, kind
        assert compiled.note.reason is None


def test_gradients_of_gradients():
    torch.manual_seed(0)
    arguments = arguments_of(own.Equivariant, given(edges=40))
    arguments = {name: a.double() if a.is_floating_point() else a for name, a in arguments.items()}
    h, coord = arguments['h'].requires_grad_(), arguments['coord'].requires_grad_()
    module = own.Equivariant(normalize=True).double()
    compiled, found = pygfuse.compile(copy.deepcopy(module)), []
    for layer in (module, compiled):
        energy = sum(out.sin().sum() for out in layer(**arguments)[:2])
        (force,) = torch.autograd.grad(energy, coord, create_graph=True)
        found.append(torch.autograd.grad(force.square().sum(), [h, coord, *layer.edge_mlp.parameters()]))
    assert compiled.note.reason is None
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


class Bounded(torch.nn.Module):
    """Moves within bounds."""

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(1, 1)

    def forward(self, coord, edge_index):
        row, col = edge_index
        difference = coord[row] - coord[col]
        move = difference * self.lin((difference**2).sum(1, keepdim=True))
        return torch.zeros_like(coord).index_add(0, row, torch.clamp(move, min=-0.5, max=0.5))


@pytest.mark.parametrize('edges', [40, 4000])
def test_gradients_of_gradients_of_bounded_moves(edges):
    torch.manual_seed(0)
    module, edge_index = Bounded().double(), torch.randint(50, (2, edges))
    compiled, coord, found = pygfuse.compile(copy.deepcopy(module)), torch.randn(50, 3).double().requires_grad_(), []
    for layer in (module, compiled):
        (force,) = torch.autograd.grad(layer(coord, edge_index).square().sum(), coord, create_graph=True)
        found.append(torch.autograd.grad(force.square().sum(), [coord, *layer.parameters()]))
    assert compiled.note.reason is None
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_result_may_be_written_to():
    torch.manual_seed(0)
    module, arguments = own.Attention(), arguments_of(own.Attention, given())
    compiled, grads = pygfuse.compile(copy.deepcopy(module)), []
    for layer in (module, compiled):
        out = layer(**arguments)[0]
        out += 1
        out.relu_()
        out.square().sum().backward()
        grads.append([parameter.grad for parameter in layer.parameters()])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


class DroppedBothWays(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        weight = torch.nn.functional.dropout((x[row] * x[col]).sum(-1, keepdim=True).sigmoid(), 0.5)
        message = weight * (x[row] - 2 * x[col])
        return [torch.zeros_like(x).index_add(0, place, message) for place in (col, row)]


def test_both_ends_are_given_what_one_dropout_has_left():
    torch.manual_seed(0)
    arguments = arguments_of(DroppedBothWays, given())
    compiled = pygfuse.compile(DroppedBothWays())
    at_targets, at_sources = compiled(**arguments)
    torch.testing.assert_close(at_targets.sum(0), at_sources.sum(0))
    full = [
        torch.zeros_like(at_targets).index_add(0, place, torch.ones(EDGES, WIDTH)) for place in given()['edge_index']
    ]
    assert not torch.equal(*full)
    assert not torch.equal(compiled(**arguments)[0], at_targets)


def test_no_gradient_reaches_what_is_reduced_to_sources_without_any():
    class Frozen(torch.nn.Module):
        def forward(self, x, edge_index):
            row, col = edge_index
            out = torch.zeros_like(x).index_add(0, col, x[row])
            message = x[col].cos()
            with torch.no_grad():
                back = scatter(message, row, 0, x.size(0))
            return out + back.sin()

    assert_same(Frozen(), arguments_of(Frozen, given()))
