"""Sparse features: the numbers of dense ones, and none but those that are not zero where it counts."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.ops import sparse_features
from pygfuse.ops.sparse_features import SparseFeatures
from tests.support.parity import random_edges

NODES, FEATURES = 40, 30


def features(dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=dtype)
    x[torch.rand(NODES, FEATURES, generator=generator) > 0.1] = 0.0
    x[3] = 0.0
    return x


@pytest.fixture
def never_dense(monkeypatch):
    """Nothing asks for the zeros."""
    monkeypatch.setattr(SparseFeatures, 'dense', None)


@pytest.fixture(params=['by a kernel', 'by torch'])
def every_product(monkeypatch, request):
    if request.param == 'by torch':
        monkeypatch.setattr(sparse_features, 'sparse_products_of', lambda device: None)


def test_a_linear_map_and_its_gradients(never_dense, every_product):
    dense, weight, bias = features(), torch.randn(7, FEATURES).double(), torch.randn(7).double()
    x = SparseFeatures.of(dense)
    assert torch.autograd.gradcheck(lambda w, b: F.linear(x, w, b), (weight.requires_grad_(), bias.requires_grad_()))
    assert torch.autograd.gradgradcheck(lambda w: F.linear(x, w).square(), (weight,))
    torch.testing.assert_close(F.linear(x, weight, bias), F.linear(dense, weight, bias))
    for product in (x @ weight.t(), torch.matmul(x, weight.t()), x.mm(weight.t())):
        torch.testing.assert_close(product, dense @ weight.t())


def test_a_batch_of_gradients():
    x, weight = SparseFeatures.of(features()), torch.randn(7, FEATURES).double().requires_grad_()
    out, grads = F.linear(x, weight), torch.randn(3, NODES, 7).double()
    (found,) = torch.autograd.grad(out, weight, grads, is_grads_batched=True)
    torch.testing.assert_close(found, grads.transpose(1, 2) @ features())


def test_dropout_keeps_zeros_and_scales_the_rest(every_product):
    dense = features()
    x = SparseFeatures.of(dense)
    torch.manual_seed(0)
    dropped = F.dropout(x, 0.5)
    kept = dropped.to_dense() != 0
    assert isinstance(dropped, SparseFeatures)
    assert 0 < int(kept.sum()) < int((dense != 0).sum())
    assert torch.equal(dropped.to_dense()[kept], 2 * dense[kept])
    assert F.dropout(x, 0.5, training=False) is x
    assert torch.nn.Dropout(0.5).eval()(x) is x
    assert torch.equal(torch.nn.Dropout(1.0)(x).to_dense(), torch.zeros_like(dense))


def test_dropout_has_the_right_distribution(every_product):
    x = SparseFeatures.of(torch.ones(300, 300))
    torch.manual_seed(0)
    mean = F.dropout(x, 0.3).to_dense().mean()
    assert abs(float(mean) - 1.0) < 0.01


@pytest.mark.parametrize(
    'index',
    [slice(5), slice(3, 20, 2), slice(-4, None), torch.tensor([3, 3, 0, -1]), torch.arange(NODES) % 3 == 0],
    ids=['prefix', 'steps', 'end', 'numbers', 'mask'],
)
def test_rows_may_be_chosen(index):
    dense = features()
    found = SparseFeatures.of(dense)[index]
    assert isinstance(found, SparseFeatures)
    assert torch.equal(found.to_dense(), dense[index])


def test_rows_by_other_functions():
    dense, index = features(), torch.tensor([4, 1])
    x = SparseFeatures.of(dense)
    assert torch.equal(x.index_select(0, index).to_dense(), dense[index])
    assert torch.equal(x.narrow(0, 2, 5).to_dense(), dense[2:7])
    assert torch.equal(x[2], dense[2])
    assert torch.equal(x[:, 3], dense[:, 3])
    with pytest.raises(IndexError):
        x[torch.tensor([NODES])]


def test_other_functions_get_the_dense_tensor():
    dense = features()
    x = SparseFeatures.of(dense)
    weight = torch.randn(NODES, FEATURES, dtype=torch.float64, requires_grad=True)
    (x * weight).sum().backward()
    assert torch.equal(weight.grad, dense)
    assert torch.equal(x.relu(), dense.relu())
    assert torch.equal(torch.cat([x, x]), torch.cat([dense, dense]))
    assert torch.equal(x.t() @ dense, dense.t() @ dense)
    assert torch.equal(torch.zeros_like(x), torch.zeros_like(dense))
    assert x.tolist() == dense.tolist()


def test_its_shape():
    x = SparseFeatures.of(features())
    assert x.shape == (NODES, FEATURES)
    assert (x.size(0), x.dim(), len(x), x.numel()) == (NODES, 2, NODES, NODES * FEATURES)
    assert x.dtype is torch.float64
    assert not x.requires_grad
    assert repr(x).startswith('SparseFeatures(shape=[40, 30]')


def test_copies_and_types():
    dense = features()
    x, buffer = SparseFeatures.of(dense), io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    for twin in (
        *(copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.detach(), x.contiguous()),
        *(x.to('cpu'), x.cpu(), torch.load(buffer, weights_only=True)),
    ):
        assert isinstance(twin, SparseFeatures)
        assert torch.equal(twin.to_dense(), dense)
    assert torch.equal(x.float().to_dense(), dense.float())
    assert x.to(torch.float32).double().dtype is torch.float64


def test_what_is_refused():
    x = SparseFeatures.of(features())
    for write in (
        lambda: x.mul_(2),
        lambda: x.__setitem__(0, 1.0),
        lambda: F.dropout(x, 0.5, inplace=True),
        lambda: torch.add(x, 1.0, out=x),
        lambda: torch.relu_(x),
        lambda: x.add_(1),
    ):
        with pytest.raises(ValueError, match='write'):
            write()
    with pytest.raises(ValueError, match='gradient'):
        x.requires_grad_()
    with pytest.raises(ValueError, match='gradient'):
        x.requires_grad = True
    with pytest.raises(ValueError, match='gradient'):
        SparseFeatures.of(features().requires_grad_())
    with pytest.raises(ValueError, match='shape'):
        SparseFeatures.of(torch.ones(3))
    with pytest.raises(ValueError, match='int64'):
        SparseFeatures.of(torch.ones(3, 3).long())
    with pytest.raises(ValueError, match='pickle'):
        sparse_features.restored(torch.tensor([0, 2]), torch.tensor([0, 7]), 3, torch.ones(2))


def test_no_nodes_and_no_values():
    for dense in (torch.zeros(0, 4), torch.zeros(3, 4)):
        x = SparseFeatures.of(dense)
        weight = torch.ones(2, 4, requires_grad=True)
        out = F.linear(x, weight)
        out.sum().backward()
        assert torch.equal(out, torch.zeros(len(dense), 2))
        assert torch.equal(weight.grad, torch.zeros(2, 4))
        assert torch.equal(F.dropout(x, 0.5).to_dense(), dense)


LAYERS = {
    'GCN': lambda: pyg.GCNConv(FEATURES, 8),
    'GCN, no loops': lambda: pyg.GCNConv(FEATURES, 8, add_self_loops=False, bias=False),
    'GCN, a mean': lambda: pyg.GCNConv(FEATURES, 8, aggr='mean'),
    'GCN, not normalised': lambda: pyg.GCNConv(FEATURES, 8, normalize=False),
    'GAT': lambda: pyg.GATConv(FEATURES, 4, heads=2, residual=True),
    'GATv2': lambda: pyg.GATv2Conv(FEATURES, 4, heads=2),
    'Transformer': lambda: pyg.TransformerConv(FEATURES, 4, heads=2),
    'SAGE': lambda: pyg.SAGEConv(FEATURES, 8),
    'SAGE, sum': lambda: pyg.SAGEConv(FEATURES, 8, aggr='sum'),
    'Graph': lambda: pyg.GraphConv(FEATURES, 8),
    'ResGated': lambda: pyg.ResGatedGraphConv(FEATURES, 8),
}
OTHERS = {
    'SAGE, max': lambda: pyg.SAGEConv(FEATURES, 8, aggr='max'),
    'SAGE, project': lambda: pyg.SAGEConv(FEATURES, 8, project=True),
    'SAGE, median': lambda: pyg.SAGEConv(FEATURES, 8, aggr='median'),
    'GIN': lambda: pyg.GINConv(torch.nn.Linear(FEATURES, 8)),
    'Edge': lambda: pyg.EdgeConv(torch.nn.Linear(2 * FEATURES, 8)),
    'AGNN': lambda: pyg.AGNNConv(),
    'CG': lambda: pyg.CGConv(FEATURES),
    'SG': lambda: pyg.SGConv(FEATURES, 8, K=2),
    'Cheb': lambda: pyg.ChebConv(FEATURES, 8, K=3),
}


def results(conv, x, edge_index):
    conv.zero_grad()
    out = conv(x, edge_index)
    out.square().sum().backward()
    return [out, *(parameter.grad for parameter in conv.parameters())]


def check_layer(make) -> None:
    torch.manual_seed(0)
    plain = make().double()
    fused = pygfuse.fuse(copy.deepcopy(plain))
    # the first call, others that are like it, and one that is not
    for seed, is_sparse in enumerate((True, True, False, True)):
        dense, edge_index = features(seed=seed), random_edges(NODES, NODES, 200, seed)
        expected = results(plain, dense, edge_index)
        x = SparseFeatures.of(dense) if is_sparse else dense
        for found, right in zip(results(fused, x, edge_index), expected, strict=True):
            torch.testing.assert_close(found, right)


@pytest.mark.parametrize('name', LAYERS)
def test_layers_that_map_their_features(name, never_dense):
    check_layer(LAYERS[name])


@pytest.mark.parametrize('name', OTHERS)
def test_layers_that_read_them_otherwise(name):
    check_layer(OTHERS[name])


def test_two_sets_of_nodes(never_dense):
    dense, edge_index = features(), random_edges(NODES, 10, 200)
    for kind in (pygfuse.conv.SAGEConv, pygfuse.conv.GATConv):
        conv = kind((FEATURES, FEATURES), 8, **({'add_self_loops': False} if 'GAT' in kind.__name__ else {})).double()
        x = SparseFeatures.of(dense)
        for _ in range(3):
            torch.testing.assert_close(conv((x, x[:10]), edge_index), conv((dense, dense[:10]), edge_index))


def test_two_sets_of_nodes_of_which_one_is_sparse():
    dense, edge_index = features(), random_edges(NODES, 10, 200)
    for kind in (pygfuse.conv.SAGEConv, pygfuse.conv.GATConv, pygfuse.conv.ResGatedGraphConv):
        conv = kind((FEATURES, FEATURES), 8, **({'add_self_loops': False} if 'GAT' in kind.__name__ else {})).double()
        x, expected = SparseFeatures.of(dense), conv((dense, dense[:10]), edge_index)
        for pair in ((x, dense[:10]), (dense, x[:10])):
            for _ in range(3):
                torch.testing.assert_close(conv(pair, edge_index), expected)


def test_autocast_and_narrow_types_take_the_dense_way():
    dense = features(torch.float32)
    x, conv, edge_index = SparseFeatures.of(dense), pygfuse.conv.GCNConv(FEATURES, 4), random_edges(NODES, NODES, 90)
    with torch.autocast('cpu', torch.bfloat16):
        assert torch.equal(conv(x, edge_index), conv(dense, edge_index))
    weight = torch.randn(3, FEATURES).bfloat16()
    assert torch.equal(F.linear(x.to(torch.bfloat16), weight), F.linear(dense.bfloat16(), weight))


def test_active_rows():
    conv, mask, edge_index = (
        pygfuse.conv.GCNConv(FEATURES, 4).double(),
        torch.arange(NODES) < 5,
        random_edges(40, 40, 99),
    )
    dense = features()
    with pygfuse.active(mask):
        out = conv(SparseFeatures.of(dense), edge_index)[mask]
    torch.testing.assert_close(out, conv(dense, edge_index)[mask])


def test_compiled_models():
    dense, edge_index = features(torch.float32), random_edges(NODES, NODES, 90)
    conv = pygfuse.conv.GCNConv(FEATURES, 4)
    compiled = torch.compile(conv, backend='eager')
    torch.testing.assert_close(compiled(SparseFeatures.of(dense), edge_index), conv(dense, edge_index))
