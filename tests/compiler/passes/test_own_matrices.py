"""Products by a matrix of each edge's own: added up first where a sum follows, else taken once a node."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Linear, ReLU, Sequential

import pygfuse
from pygfuse.compiler.ir.values import EDGE, in_order, value
from pygfuse.compiler.passes.own_matrices import own_matrices_after_sums
from pygfuse.memory import peak_bytes, saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.compiler.support import check, edge, shared, source, target
from tests.support.parity import GRAPHS, random_edges

IN, OUT, EDGE_DIM = 6, 4, 3
BIAS = shared(IN * OUT, name='bias')


def product(x, numbers, bias=BIAS):
    return value('own_matrix', x, numbers, shared(IN * OUT, EDGE_DIM), bias)


def ops(output) -> set[str]:
    return {node.op for node in in_order(output)}


@pytest.mark.parametrize('reduce', ['sum', 'mean'])
@pytest.mark.parametrize('bias', [BIAS, None])
def test_a_sum_follows(reduce, bias):
    views = value('reshape', value('reshape', product(source(IN), edge(EDGE_DIM), bias), shape=(1, OUT)), shape=(OUT,))
    found = check(own_matrices_after_sums, value('reduce', views, reduce=reduce))
    assert found.op == 'reshape'
    assert [node.op for node in in_order(found) if node.residency == EDGE] == ['input', 'own_matrix']


@pytest.mark.parametrize(
    'output',
    [
        value('reduce', product(source(IN), edge(EDGE_DIM)), reduce='max'),
        value('reduce', value('relu', product(source(IN), edge(EDGE_DIM))), reduce='sum'),
        value('reduce', product(target(IN), edge(EDGE_DIM)), reduce='sum'),
        value('reduce', product(value('mul', source(IN), edge(IN)), edge(EDGE_DIM)), reduce='sum'),
        value('reduce', product(source(IN), target(EDGE_DIM)), reduce='sum'),
        value('reduce', product(source(IN), edge(EDGE_DIM), None), reduce='max'),
    ],
)
def test_another_is_written_out(output):
    assert 'own_matrix' not in ops(check(own_matrices_after_sums, output))


def test_one_that_is_read_twice_is_written_out():
    once = product(source(IN), edge(EDGE_DIM))
    output = value('add', value('reduce', once, reduce='sum'), value('reduce', value('relu', once), reduce='sum'))
    assert 'own_matrix' not in ops(check(own_matrices_after_sums, output))


class ByMatrix(Own):
    """A message by a matrix that a network makes of an edge's features; by what and how it is multiplied, varies."""

    def __init__(self, kind: str, aggr: str = 'sum', bias: bool = True, hidden: int = 5) -> None:
        super().__init__(aggr)
        self.kind = kind
        self.last = Linear({'narrow': EDGE_DIM, 'distance': 1}.get(kind, hidden), IN * OUT, bias=bias)
        self.first = Sequential(Linear(2 * IN if kind == 'ends' else EDGE_DIM, hidden), ReLU())

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        if self.kind == 'narrow':
            numbers = edge_attr
        elif self.kind == 'distance':
            numbers = (x_i - x_j).norm(dim=-1, keepdim=True)
        else:
            numbers = self.first(torch.cat([x_i, x_j], dim=-1) if self.kind == 'ends' else edge_attr)
        rows = x_i if self.kind == 'targets' else x_j * edge_attr[:, :1] if self.kind == 'scaled' else x_j
        out = torch.matmul(rows.unsqueeze(1), self.last(numbers).view(-1, IN, OUT)).squeeze(1)
        return out.tanh() if self.kind == 'behind' else out


def given(graph):
    return {'x': graph.x(IN), 'edge_index': graph.edge_index, 'edge_attr': graph.edge_attr(EDGE_DIM)}


FORMS = {
    'narrow': 'network on chunks of edges: sum',
    'network': 'network on chunks of edges: sum',
    'ends': 'network on chunks of edges: sum',
    'distance': 'network on chunks of edges: sum',
}


@pytest.mark.parametrize('graph', ['random', 'hub', 'isolated nodes', 'repeated edges'])
@pytest.mark.parametrize('kind', [*FORMS, 'targets', 'scaled', 'behind'])
def test_layers_are_as_pyg_s(kind, graph):
    torch.manual_seed(0)
    conv = ByMatrix(kind)
    assert_as_pyg(conv, given(GRAPHS[graph]()))
    titles = [form.title for plan in conv.plans() for form in plan.walks.values()]
    assert (FORMS.get(kind) in titles) == (kind in FORMS)


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('aggr', ['mean', 'max'])
def test_other_reductions_are_as_pyg_s(aggr, bias):
    torch.manual_seed(0)
    assert_as_pyg(ByMatrix('network', aggr, bias), given(GRAPHS['random']()))


def test_no_matrix_and_no_products_of_a_node_are_in_memory(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.CHUNK_BYTES', 2**10)
    conv, edges = pygfuse.compile(ByMatrix('network', hidden=32)), 20_000

    def measured(nodes: int) -> tuple[int, int]:
        x, edge_index = torch.randn(nodes, IN, requires_grad=True), random_edges(nodes, nodes, edges)
        edge_attr = torch.randn(edges, EDGE_DIM)

        def step() -> None:
            x.grad = None
            conv.zero_grad()
            conv(x, edge_index, edge_attr).sum().backward()

        step()
        exclude = [x, edge_index, edge_attr, *conv.parameters()]
        return saved_bytes(lambda: conv(x, edge_index, edge_attr), exclude=exclude), peak_bytes(step, warmup=1)

    (saved, peak), (saved_of_more, peak_of_more) = measured(2000), measured(4000)
    assert saved_of_more == saved
    # outputs, their gradients and those of features, of float32: not 32 products of each node
    assert peak_of_more - peak < 2000 * 4 * 4 * (IN + OUT)


class Written(ByMatrix):
    """The same product as others write it."""

    def message(self, x_i, x_j, edge_attr):
        numbers = self.last(self.first(edge_attr))
        if self.kind == 'einsum':
            return torch.einsum('ei,eio->eo', x_j, numbers.view(-1, IN, OUT))
        if self.kind == 'bmm':
            return torch.bmm(x_j.unsqueeze(1), numbers.reshape(x_j.size(0), IN, OUT)).squeeze(1)
        columns = x_j.unsqueeze(2) if self.kind == 'columns' else x_j[..., None]
        return (numbers.view(-1, OUT, IN) @ columns).squeeze(-1)


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('kind', ['einsum', 'bmm', 'columns', 'indexed'])
def test_ways_of_writing_it(kind, bias):
    torch.manual_seed(0)
    conv = Written(kind, bias=bias)
    assert_as_pyg(conv, given(GRAPHS['random']()))
    assert [form.title for plan in conv.plans() for form in plan.walks.values()] == ['network on chunks of edges: sum']


class BySoftmax(ByMatrix):
    """A matrix that is no linear map of anything."""

    def message(self, x_i, x_j, edge_attr):
        matrix = self.last(self.first(edge_attr)).view(-1, IN, OUT).softmax(dim=1)
        return torch.einsum('ei,eio->eo', x_j, matrix)


def test_an_equation_of_other_matrices_runs_on_chunks(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_CHUNKED_BYTES', 0)
    torch.manual_seed(0)
    conv = BySoftmax('softmax')
    assert_as_pyg(conv, given(GRAPHS['random']()))
    assert [form.title for plan in conv.plans() for form in plan.walks.values()] == ['operators on chunks of edges']
