"""Modules that are given sparse matrices, or hold these, or edges."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.mapping import few_edges
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import given

with contextlib.suppress(ImportError):
    from torch_sparse import SparseTensor, matmul

ITEMS = 11


class GraphConvolution(nn.Module):
    """A layer as the first code of graph convolutional networks has it."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def forward(self, input, adj):
        return torch.spmm(adj, torch.mm(input, self.weight)) + self.bias


class TwoLayers(nn.Module):
    """The latter along the transposed matrix."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GraphConvolution(), GraphConvolution()

    def forward(self, input, adj):
        if adj.shape[0] != input.size(0):
            raise ValueError('Expected a row for each node')
        return self.second(self.first(input, adj).relu(), adj.t()), adj


class Propagated(nn.Module):
    """Embeddings alone tell the features, and the matrix the number of nodes."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(NODES - ITEMS, WIDTH), nn.Embedding(ITEMS, WIDTH)

    def forward(self, adj):
        x = torch.cat([self.users.weight, self.items.weight])
        found = [x]
        for _ in range(2):
            x = torch.sparse.mm(adj, x)
            found.append(x)
        return torch.split(torch.stack(found, dim=1).mean(dim=1), [NODES - ITEMS, ITEMS])


class Attention(nn.Module):
    """What gathers by the entries of the matrix."""

    def forward(self, input, adj):
        row, col = adj.indices()
        share = softmax((input[row] * input[col]).sum(-1) * adj.values(), row, num_nodes=input.size(0))
        return torch.zeros_like(input).index_add_(0, row, share.unsqueeze(-1) * input[col])


class Ratings(nn.Module):
    """Between two sets of nodes, both ways."""

    def forward(self, users, items, ratings):
        return torch.sparse.mm(ratings, items.tanh()), ratings.t() @ users


class OfTorchSparse(nn.Module):
    def forward(self, x, adj_t):
        if not isinstance(adj_t, SparseTensor):
            raise TypeError(f'Expected a SparseTensor, not a {type(adj_t)}')
        row, col, _ = adj_t.coo()
        near = torch.zeros_like(x).index_add(0, row, x[col].sin())
        return matmul(adj_t, x, reduce='mean') + adj_t @ x.tanh() + adj_t.t().matmul(near)


class MadeInside(nn.Module):
    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        size = (x.size(0), x.size(0))
        adj = SparseTensor(row=col, col=row, value=edge_weight, sparse_sizes=size)
        older = torch.sparse.FloatTensor(edge_index, edge_weight, torch.Size(size))
        return matmul(adj, x) + SparseTensor(row=row, col=col, sparse_sizes=size) @ x.tanh() + older @ x


def adjacency(seed=0, num_columns=NODES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randint(count, (200,), generator=generator) for count in (NODES, num_columns))
    numbers = torch.rand(200, generator=generator, dtype=torch.float64).to(dtype)
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), numbers, (NODES, num_columns))


MATRICES = {
    'entries': adjacency,
    'coalesced': lambda **how: adjacency(**how).coalesce(),
    'rows': lambda **how: adjacency(**how).coalesce().to_sparse_csr(),
}


def assert_same_of(module, make, reason=None):
    """A module and what is compiled of it give the same, with gradients, in each of two calls."""
    compiled = pygfuse.compile(copy.deepcopy(module)).double()
    module = module.double()
    for seed in range(2):
        found = []
        for one in (module, compiled):
            arguments = make(seed)
            leaves = [x.requires_grad_() for x in arguments if isinstance(x, torch.Tensor) and _is_leaf(x)]
            out = one(*arguments)
            parts = [part for part in (out if isinstance(out, tuple) else (out,)) if _is_leaf(part)]
            loss = sum((part**2).sum() for part in parts)
            found.append([*parts, *torch.autograd.grad(loss, [*leaves, *one.parameters()])])
        for theirs, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert compiled.note.reason == reason
    return compiled


def _is_leaf(x):
    return x.layout is torch.strided and x.is_floating_point()


def features(seed, nodes=NODES):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, WIDTH, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize('kind', [GraphConvolution, TwoLayers])
@pytest.mark.parametrize('layout', MATRICES)
def test_products(layout, kind):
    torch.manual_seed(0)
    assert_same_of(kind(), lambda seed: (features(seed), MATRICES[layout](seed=seed, dtype=torch.float64)))


@pytest.mark.parametrize('layout', MATRICES)
def test_the_matrix_alone(layout):
    torch.manual_seed(0)
    assert_same_of(Propagated(), lambda seed: (MATRICES[layout](seed=seed, dtype=torch.float64),))


def test_entries_are_gathered_by():
    torch.manual_seed(0)
    made = MATRICES['coalesced']
    assert_same_of(Attention(), lambda seed: (features(seed), made(seed=seed, dtype=torch.float64)))


def test_entries_that_are_not_yet_one_for_each_place():
    """Torch asks for a coalesced matrix, and so does what is compiled."""
    compiled = pygfuse.compile(Attention())
    with pytest.raises(RuntimeError, match='coalesced'):
        compiled(features(0).float(), adjacency())


@pytest.mark.parametrize('layout', MATRICES)
def test_two_sets(layout):
    torch.manual_seed(0)
    made = MATRICES[layout]

    def make(seed):
        return features(seed), features(seed + 9, ITEMS), made(seed=seed, num_columns=ITEMS, dtype=torch.float64)

    assert_same_of(Ratings(), make)


def test_a_matrix_that_is_returned_is_the_same():
    compiled, adj = pygfuse.compile(TwoLayers()), adjacency().coalesce()
    assert compiled(features(0).float(), adj)[1] is adj


def test_numbers_that_are_written_to():
    torch.manual_seed(0)
    module = GraphConvolution()
    compiled, adj, x = pygfuse.compile(copy.deepcopy(module)), adjacency().coalesce(), features(0).float()
    for factor in (1.0, 2.0):
        adj._values().mul_(factor)
        torch.testing.assert_close(compiled(x, adj), module(x, adj))
        assert compiled.note.reason is None


def test_the_graph_is_kept_with_the_matrix():
    compiled, adj, x = pygfuse.compile(GraphConvolution()), adjacency().coalesce(), features(0).float()
    graphs = []
    for _ in range(2):
        compiled(x, adj)
        call, _ = compiled._call_and_plan((x, adj), {})
        graphs.append(call.edge_index)
    assert graphs[0] is graphs[1]


@pytest.mark.parametrize(
    ('matrix', 'reason'),
    [
        (adjacency().coalesce().requires_grad_(), 'adj is a sparse matrix that has gradients of its own'),
        (adjacency(num_columns=NODES + 1), 'a sparse matrix of another size than there are nodes'),
        (adjacency().double(), 'the tensors are of several types'),
    ],
)
def test_what_runs_its_own_code(matrix, reason):
    torch.manual_seed(0)
    module, x = GraphConvolution(), features(0).float()
    compiled = pygfuse.compile(copy.deepcopy(module))
    outcomes = []
    for one in (module, compiled):
        try:
            outcomes.append(one(x, matrix))
        except RuntimeError as error:
            outcomes.append(str(error))
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        torch.testing.assert_close(outcomes[1], outcomes[0])
    assert compiled.note.reason == reason


def test_several_numbers_for_each_entry():
    """Of such a matrix nothing is taken for edges."""
    compiled = pygfuse.compile(GraphConvolution())
    with pytest.raises(RuntimeError):
        compiled(features(0).float(), torch.sparse_coo_tensor([[0], [1]], [[1.0, 2.0]], (NODES, NODES, 2)))
    assert compiled.note.reason == 'none of its arguments is an edge_index'


@pytest.mark.parametrize('has_numbers', [False, True])
def test_matrices_of_torch_sparse(has_numbers, needs_torch_sparse):
    def make(seed):
        adj = adjacency(seed, dtype=torch.float64).coalesce()
        row, col = adj.indices()
        numbers = adj.values() if has_numbers else None
        return features(seed), SparseTensor(row=row, col=col, value=numbers, sparse_sizes=(NODES, NODES))

    assert_same_of(OfTorchSparse(), make)


def test_matrices_that_are_made_inside(needs_torch_sparse):
    torch.manual_seed(0)
    data = given()
    module = MadeInside()
    compiled = pygfuse.compile(copy.deepcopy(module))
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')}
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None


class Recommender(nn.Module):
    """LightGCN, which holds its matrix and is given a batch of users and items."""

    def __init__(self, graph):
        super().__init__()
        self.users, self.items = nn.Embedding(NODES - ITEMS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.graph = graph

    def computer(self):
        x = torch.cat([self.users.weight, self.items.weight])
        found = [x]
        for _ in range(2):
            x = torch.sparse.mm(self.graph, x)
            found.append(x)
        return torch.split(torch.mean(torch.stack(found, dim=1), dim=1), [NODES - ITEMS, ITEMS])

    def forward(self, users, items):
        of_users, of_items = self.computer()
        return torch.sum(of_users[users.long()] * of_items[items.long()], dim=1)


class Derivative(nn.Module):
    """A function of an equation that is integrated: its edges, and their weights, are set before."""

    def __init__(self):
        super().__init__()
        self.lin, self.edge_index, self.edge_weight = nn.Linear(WIDTH, WIDTH), None, None

    def forward(self, t, x):
        row, col = self.edge_index
        return torch.zeros_like(x).index_add(0, col, self.lin(x)[row] * self.edge_weight[:, None]) - x


class OfBuffers(nn.Module):
    def __init__(self, edge_index):
        super().__init__()
        self.register_buffer('edges', edge_index)
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        row, col = self.edges[:, self.edges[0] != self.edges[1]]
        return torch.zeros_like(x).index_add(0, col, self.inner(x)[row].relu())


def test_a_matrix_that_is_held():
    torch.manual_seed(0)
    module = Recommender(adjacency(dtype=torch.float64).coalesce())
    assert_same_of(module, lambda seed: (torch.arange(5) + seed, torch.arange(5)))


def test_a_matrix_that_is_another_in_the_next_call():
    torch.manual_seed(0)
    module = Recommender(None)
    compiled, users = pygfuse.compile(copy.deepcopy(module)), torch.arange(5)
    for seed in range(3):
        module.graph = compiled.graph = MATRICES[list(MATRICES)[seed]](seed=seed)
        torch.testing.assert_close(compiled(users, users), module(users, users))
        assert compiled.note.reason is None


def test_edges_that_are_held_and_set():
    torch.manual_seed(0)
    module = Derivative()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for seed, edges in enumerate((200, 150, 200)):
        data = given(seed, edges=edges)
        for one in (module, compiled):
            one.edge_index, one.edge_weight = data['edge_index'], data['edge_weight']
        torch.testing.assert_close(compiled(0.5, data['x']), module(0.5, data['x']))
        assert compiled.note.reason is None


def test_edges_in_a_buffer():
    torch.manual_seed(0)
    assert_same_of(OfBuffers(given()['edge_index']), lambda seed: (features(seed),))


def test_edges_of_parts_of_which_each_has_its_own():
    torch.manual_seed(0)
    module = nn.Sequential(OfBuffers(given()['edge_index']), OfBuffers(given(1)['edge_index']))
    compiled = pygfuse.fuse(copy.deepcopy(module), include=OfBuffers)
    x = features(0).float()
    torch.testing.assert_close(compiled(x), module(x))
    assert [one.note.reason for one in compiled] == [None, None]


def test_features_of_edges_beside_a_matrix():
    """A call that brings edges is along these."""

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.adj, self.lin = adjacency().coalesce(), nn.Linear(OF_EDGES, WIDTH)

        def forward(self, x, edge_index, edge_attr):
            row, col = edge_index
            return torch.zeros_like(x).index_add(0, col, x[row] * self.lin(edge_attr)) + self.adj @ x

    torch.manual_seed(0)
    module, data = Beside(), given()
    compiled = pygfuse.compile(copy.deepcopy(module))
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_attr')}
    torch.testing.assert_close(compiled(**arguments), module(**arguments))


@pytest.mark.parametrize('layout', MATRICES)
def test_few_entries(layout, monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_A_PRODUCT', 200)
    compiled, adj, x = pygfuse.compile(GraphConvolution()), MATRICES[layout](), features(0).float()
    none = torch.sparse_coo_tensor(size=(NODES, NODES))
    reasons = []
    for matrix in (adj, torch.eye(NODES).to_sparse(), none, torch.ones(NODES, NODES).to_sparse()):
        compiled(x, matrix)
        reasons.append(compiled.note.reason)
    assert reasons == [SO_FEW_EDGES, SO_FEW_EDGES, 'there are no edges', None]


@pytest.mark.parametrize('layout', MATRICES)
def test_between_two_traces(layout):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x, adj = GraphConvolution(), features(0).float(), MATRICES[layout]()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(torch.compile(compiled, backend='aot_eager')(x, adj), module(x, adj))
    assert compiled.note.reason is None


def test_held_edges_between_two_traces():
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, x = OfBuffers(given()['edge_index']), features(0).float()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(torch.compile(compiled, backend='aot_eager')(x), module(x))
    assert compiled.note.reason is None
