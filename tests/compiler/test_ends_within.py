"""Networks to which values of nodes are added, or by which they are multiplied, between stages on edges."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import LayerNorm, Linear, ReLU, Sequential
from torch_geometric.utils import softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, results

WIDTH, DIM = 8, 3


def network(width: int) -> Sequential:
    return Sequential(Linear(width, WIDTH), LayerNorm(WIDTH), ReLU(), Linear(WIDTH, WIDTH))


class Attended(Own):
    """Attention over what networks give of the source, of features of the edge and of both, as HiVT's."""

    def __init__(self, drops=0.0):
        super().__init__(node_dim=0)
        self.of_source, self.of_edge = network(WIDTH), network(DIM)
        self.both = Sequential(LayerNorm(WIDTH), ReLU(), Linear(WIDTH, WIDTH), LayerNorm(WIDTH))
        self.query, self.key, self.value = (Linear(WIDTH, WIDTH) for _ in range(3))
        self.drop = torch.nn.Dropout(drops)

    def message(self, x_i, x_j, edge_attr, index, ptr, size_i):
        found = self.both(torch.stack([self.of_source(x_j), self.of_edge(edge_attr)]).sum(dim=0))
        score = (self.query(x_i) * self.key(found)).view(-1, 2, WIDTH // 2).sum(dim=-1)
        weights = self.drop(softmax(score, index, ptr, size_i)).unsqueeze(-1)
        return (weights * self.value(found).view(-1, 2, WIDTH // 2)).flatten(1)


class Residual(Own):
    """A network's values beside their sources, reduced and returned."""

    def __init__(self, aggr='mean'):
        super().__init__(aggr)
        self.nn = network(2 * WIDTH + DIM)

    def message(self, x_i, x_j, edge_attr):
        return x_j + self.nn(torch.cat([edge_attr, x_j, x_i], dim=-1))

    def aggregate(self, inputs, index, ptr, dim_size):
        return super().aggregate(inputs, index, ptr, dim_size), inputs


class ByTarget(Own):
    """A network's values times those of their target, added to it once more, and through another network."""

    def __init__(self):
        super().__init__()
        self.first, self.last = network(DIM), network(WIDTH)

    def message(self, x_i, edge_attr):
        return self.last(x_i * self.first(edge_attr) + x_i)


KINDS = {
    'attended': Attended,
    'residual': Residual,
    'residual, sum': lambda: Residual('sum'),
    'by target': ByTarget,
}


def given(graph: str = 'random') -> dict[str, torch.Tensor]:
    example = GRAPHS[graph]()
    edge_attr = torch.randn(example.edge_index.shape[1], DIM)
    return {'edge_index': example.edge_index, 'x': torch.randn(example.num_targets, WIDTH), 'edge_attr': edge_attr}


def forms(conv) -> list[str]:
    (plan,) = conv.plans()
    return [form.title for form in {id(form): form for form in plan.walks.values()}.values()]


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges', 'path', 'self-loops'])
@pytest.mark.parametrize('name', KINDS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    torch.manual_seed(0)
    conv = KINDS[name]()
    assert_as_pyg(conv, given(graph))
    assert 'operators on chunks of edges' not in forms(conv)


@pytest.mark.usefixtures('at_once')
@pytest.mark.parametrize('name', KINDS)
def test_few_edges(name):
    torch.manual_seed(0)
    assert_as_pyg(KINDS[name](), given())


def test_dropped_weights_are_drawn_once():
    torch.manual_seed(0)
    conv = pygfuse.compile(Attended(0.5))
    arguments = given()
    conv(**arguments)
    assert 'operators on chunks of edges' not in forms(conv)
    conv.eval()
    plain = Attended().eval()
    plain.load_state_dict(conv.state_dict())
    torch.testing.assert_close(conv(**arguments), plain(**arguments))


def test_gradients_of_gradients():
    torch.manual_seed(0)
    conv, arguments = ByTarget(), given()
    fused, found = pygfuse.compile(copy.deepcopy(conv)), []
    for layer in (conv, fused):
        x = arguments['x'].double().requires_grad_()
        out = layer.double()(arguments['edge_index'], x=x, edge_attr=arguments['edge_attr'].double())
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), x))
    torch.testing.assert_close(*found)
    assert fused.note.reason is None


def test_values_of_nodes_that_are_read_twice_are_in_memory_once():
    conv = pygfuse.compile(ByTarget())
    conv(**given())
    (plan,) = conv.plans()
    assert sum(node.op == 'on_edges' for node in plan.steps) == 1
    assert results(conv, given(), torch.float32, 0)
