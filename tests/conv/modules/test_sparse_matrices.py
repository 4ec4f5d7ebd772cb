"""Modules that make a sparse matrix of their edges, and multiply by it."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

with contextlib.suppress(ImportError):
    import torch_sparse
    from torch_sparse import SparseTensor, spmm

import pygfuse
from tests.compiler.own_modules import NODES, WIDTH
from tests.conv.modules.arguments import assert_same, given


class Weighed(nn.Module):
    """A graph convolution, and back by the transposed matrix."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_weight):
        size = (x.size(0), x.size(0))
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight.sigmoid(), size).coalesce()
        x = torch.sparse.mm(matrix, self.lin(x)).relu()
        return matrix.t() @ x


class WithLoops(nn.Module):
    """Sums, of itself too, and how many there are."""

    def forward(self, x, edge_index):
        num_nodes = x.size(0)
        loops = torch.arange(num_nodes, device=x.device).repeat(2, 1)
        indices = torch.cat([edge_index, loops], dim=1)
        values = torch.ones(indices.size(1), dtype=x.dtype, device=x.device)
        matrix = torch.sparse_coo_tensor(indices, values, torch.Size([num_nodes, num_nodes]))
        total = torch.mv(matrix, x.new_ones(num_nodes))
        return torch.spmm(matrix, x) / total.unsqueeze(-1)


class BetweenSets(nn.Module):
    def forward(self, users, items, edge_index, edge_weight):
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight, (users.size(0), items.size(0)))
        return users + matrix @ items.tanh()


class WithoutGradients(nn.Module):
    """Matrices whose numbers get no gradient where they are made, or transposed, without; rows of nodes do."""

    def forward(self, x, edge_index, edge_weight):
        size = (x.size(0), x.size(0))
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight, size)
        with torch.no_grad():
            made, seen = torch.sparse_coo_tensor(edge_index, edge_weight.cos(), size), matrix.t()
        return made @ x + seen @ x.tanh() + matrix.coalesce() @ x.sin()


class Degrees(nn.Module):
    """What each node's neighbours sum up to, by sums of rows and of columns."""

    def forward(self, x, edge_index, edge_weight):
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight.sigmoid(), (x.size(0), x.size(0)))
        into = torch.sparse.sum(matrix, dim=1).to_dense()
        out_of = torch.sparse.sum(matrix, 0).to_dense()
        return torch.sparse.mm(matrix, x.sin()) / (into + 1).unsqueeze(-1) + out_of[:, None]


class OfDense(nn.Module):
    """A function of a sparse matrix that is no product."""

    def forward(self, x, edge_index, edge_weight):
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0)))
        return matrix.to_dense() @ x


class Total(nn.Module):
    def forward(self, x, edge_index, edge_weight):
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0)))
        return matrix @ x / (matrix.sum() + 100)


class SparseDegrees(nn.Module):
    def forward(self, x, edge_index, edge_weight):
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0)))
        return matrix @ x + torch.sparse.sum(matrix, dim=1).coalesce().values().mean()


class Unsized(nn.Module):
    """A matrix that ends at the largest index."""

    def forward(self, x, edge_index, edge_weight):
        matrix = torch.sparse_coo_tensor(edge_index, edge_weight)
        return matrix @ x[: matrix.shape[1]]


def test_outputs_and_gradients_are_those_of_its_own_code():
    torch.manual_seed(0)
    data = given()
    assert_same(Weighed(), {name: data[name] for name in ('x', 'edge_index', 'edge_weight')})
    assert_same(WithLoops(), {name: data[name] for name in ('x', 'edge_index')})
    assert_same(Degrees(), {name: data[name] for name in ('x', 'edge_index', 'edge_weight')})
    assert_same(WithoutGradients(), {name: data[name] for name in ('x', 'edge_index', 'edge_weight')})
    users, items = data['x'], data['x'][: NODES - 4].flip(0)
    edge_index = torch.stack([data['edge_index'][0], data['edge_index'][1].clamp(max=NODES - 5)])
    assert_same(
        BetweenSets(), {'users': users, 'items': items, 'edge_index': edge_index, 'edge_weight': data['edge_weight']}
    )


@pytest.mark.parametrize(
    ('kind', 'reason'),
    [
        (OfDense, 'to_dense of a sparse matrix'),
        (Unsized, 'a sparse matrix that does not say how many nodes there are'),
        (Total, 'sum of a whole sparse matrix'),
        (SparseDegrees, 'coalesce of sums of a sparse matrix'),
    ],
)
def test_what_is_no_product_is_for_its_own_code(kind, reason):
    data = given()
    assert_same(kind(), {name: data[name] for name in ('x', 'edge_index', 'edge_weight')}, reason)


class OfTorchSparse(nn.Module):
    def forward(self, x, edge_index, edge_weight):
        return spmm(edge_index, edge_weight, x.size(0), x.size(0), x.sin())


def test_products_of_torch_sparse(needs_torch_sparse):
    data = given()
    assert_same(OfTorchSparse(), {name: data[name] for name in ('x', 'edge_index', 'edge_weight')})


class Normalised(nn.Module):
    """The norm of a graph convolution as `torch_sparse` writes it.

    Args:
        has_numbers: Whether the matrix holds some.
    """

    def __init__(self, has_numbers):
        super().__init__()
        self.has_numbers = has_numbers

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        value, size = edge_weight.sigmoid() if self.has_numbers else None, (x.size(0), x.size(0))
        matrix = SparseTensor(row=col, col=row, value=value, sparse_sizes=size)
        into = (torch_sparse.sum(matrix, dim=1).to(x.dtype) + 1).pow(-0.5)
        out_of = (matrix.sum(dim=0).to(x.dtype) + 1).pow(-0.5)
        matrix = torch_sparse.mul(matrix, into.view(-1, 1)) * out_of.view(1, -1)
        return torch_sparse.matmul(matrix, x.sin())


class ScaledByRowsOfFeatures(nn.Module):
    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        matrix = SparseTensor(row=col, col=row, value=edge_weight, sparse_sizes=(x.size(0), x.size(0)))
        return (matrix * x[:, :1].t()) @ x + torch_sparse.mul(matrix, matrix) @ x


@pytest.mark.parametrize('has_numbers', [True, False])
def test_norms_of_torch_sparse(has_numbers, needs_torch_sparse):
    data = given()
    assert_same(Normalised(has_numbers), {name: data[name] for name in ('x', 'edge_index', 'edge_weight')})


def test_a_matrix_times_a_matrix_is_for_its_own_code(needs_torch_sparse):
    data = given()
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')}
    arguments['edge_index'] = torch.unique(arguments['edge_index'], dim=1)
    arguments['edge_weight'] = arguments['edge_weight'][: arguments['edge_index'].shape[1]]
    reason = 'a sparse matrix times something else than a number for each row or each column'
    assert_same(ScaledByRowsOfFeatures(), arguments, reason)


class OfRows(nn.Module):
    """A row of numbers for each entry, reduced along one dimension: DIFUSCO's convolution and others of TSP."""

    def __init__(self, reduce, dim):
        super().__init__()
        self.lin, self.reduce, self.dim = nn.Linear(WIDTH, WIDTH), reduce, dim

    def rows(self, x, edge_index):
        return self.lin(x[edge_index[0]]) * torch.sigmoid(x[edge_index[1]])

    def forward(self, x, edge_index):
        size = (x.size(0), x.size(0))
        matrix = SparseTensor(row=edge_index[0], col=edge_index[1], value=self.rows(x, edge_index), sparse_sizes=size)
        return getattr(torch_sparse, self.reduce)(matrix, dim=self.dim)


class OfRowsOfTorch(OfRows):
    """The same as older code makes it: graph substructure networks."""

    def forward(self, x, edge_index):
        rows = self.rows(x, edge_index)
        size = torch.Size([x.size(0), x.size(0), rows.shape[1]])
        return torch.sparse.sum(torch.sparse.FloatTensor(edge_index, rows, size), dim=self.dim).to_dense()


class Entries(OfRowsOfTorch):
    def forward(self, x, edge_index):
        matrix = torch.sparse_coo_tensor(edge_index, x[edge_index[0]].tanh(), (x.size(0), x.size(0), WIDTH))
        return matrix.coalesce().values().sum(dim=0) + x


@pytest.mark.parametrize('dim', [0, 1])
@pytest.mark.parametrize('reduce', ['sum', 'mean', 'max', 'min'])
def test_rows_of_torch_sparse(reduce, dim, needs_torch_sparse):
    data = given()
    data['edge_index'] = torch.cat([data['edge_index'], data['edge_index'][:, :9]], dim=1) % (NODES - 3)
    assert_same(OfRows(reduce, dim), {name: data[name] for name in ('x', 'edge_index')})


class Merged(OfRows):
    """What is one entry of repeated edges counts once."""

    def forward(self, x, edge_index):
        rows, size = self.rows(x, edge_index), (x.size(0), x.size(0))
        matrix = SparseTensor(row=edge_index[0], col=edge_index[1], value=rows, sparse_sizes=size).coalesce().t()
        return getattr(torch_sparse, self.reduce)(matrix, dim=self.dim)


@pytest.mark.parametrize('reduce', ['sum', 'mean', 'max'])
def test_repeated_edges_that_have_become_one(reduce, needs_torch_sparse):
    data = given()
    data['edge_index'] = data['edge_index'] % 5
    reason = None if reduce == 'sum' else f'{reduce} of a sparse matrix whose entries of one place have become one'
    assert_same(Merged(reduce, 1), {name: data[name] for name in ('x', 'edge_index')}, reason)


class MergedProduct(nn.Module):
    def __init__(self, reduce, has_numbers):
        super().__init__()
        self.reduce, self.has_numbers = reduce, has_numbers

    def forward(self, x, edge_index, edge_weight):
        value, size = edge_weight if self.has_numbers else None, (x.size(0), x.size(0))
        matrix = SparseTensor(row=edge_index[0], col=edge_index[1], value=value, sparse_sizes=size).coalesce()
        return torch_sparse.matmul(matrix, x, reduce=self.reduce)


@pytest.mark.parametrize(
    ('reduce', 'has_numbers', 'is_same'), [('sum', True, True), ('sum', False, False), ('mean', True, False)]
)
def test_products_of_repeated_edges_that_have_become_one(reduce, has_numbers, is_same, needs_torch_sparse):
    data = given()
    data['edge_index'] = data['edge_index'] % 5
    reason = None if is_same else f'{reduce} of a sparse matrix whose entries of one place have become one'
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')}
    assert_same(MergedProduct(reduce, has_numbers), arguments, reason)


@pytest.mark.parametrize('dim', [0, 1])
def test_rows_of_torch(dim):
    data = given()
    # torch makes matrices of one type alone in this way
    compiled, plain = pygfuse.compile(OfRowsOfTorch('sum', dim)), OfRowsOfTorch('sum', dim)
    plain.load_state_dict(compiled.state_dict())
    x = data['x'].requires_grad_()
    found = [layer(x, data['edge_index']) for layer in (compiled, plain)]
    gradients = [torch.autograd.grad(out.square().sum(), [x, layer.lin.weight]) for out, layer in
                 zip(found, (compiled, plain), strict=True)]  # fmt: skip
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert compiled.note.reason is None


def test_entries_that_are_rows_are_for_its_own_code():
    data = given()
    reason = 'it reads the entries of a sparse matrix'
    assert_same(Entries('sum', 0), {name: data[name] for name in ('x', 'edge_index')}, reason)
