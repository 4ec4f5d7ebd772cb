"""Dropouts within networks on edges: the numbers of PyG's layer that drops the same."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Linear, Module, ReLU, Sequential
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn.models.schnet import CFConv as PlainCFConv
from torch_geometric.nn.models.schnet import ShiftedSoftplus

import pygfuse
from pygfuse.conv import CFConv, EdgeConv, NNConv
from tests.support.drawn_dropouts import assert_same_numbers, recorded
from tests.support.edge_conv import FEATURES, HIDDEN, OUT, WIDE, one
from tests.support.parity import random_edges

NODES, EDGES, EDGE_DIM = 200, 3000, 3
NETWORKS = {
    'one map': lambda: one(Dropout(0.3)),
    'relu': lambda: one(ReLU(), Dropout(0.3)),
    'a map behind': lambda: one(ReLU(), Dropout(0.3), Linear(HIDDEN, OUT)),
    'two': lambda: one(ReLU(), Dropout(0.3), Linear(HIDDEN, OUT), ReLU(), Dropout(0.5)),
    'normalised before': lambda: one(BatchNorm1d(HIDDEN), ReLU(), Dropout(0.3), Linear(HIDDEN, OUT)),
    'normalised behind': lambda: one(Dropout(0.3), BatchNorm1d(HIDDEN), ReLU(), Linear(HIDDEN, OUT)),
    'an MLP': lambda: pyg.MLP([WIDE, HIDDEN, HIDDEN, OUT], dropout=[0.1, 0.2, 0.3]),
    'an MLP that ends as it goes on': lambda: pyg.MLP([WIDE, HIDDEN, OUT], dropout=[0.1, 0.2], plain_last=False),
}


def edges_of(num_edges: int = EDGES) -> Tensor:
    return random_edges(NODES, NODES - 3, num_edges)


def features(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def of(kind: type, own: Module) -> Module:
    """A fused layer with the same parameters, statistics and options."""
    fused = copy.deepcopy(own)
    fused.__class__ = kind
    return fused


@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max', 'min'])
@pytest.mark.parametrize('name', NETWORKS)
def test_outputs_and_gradients_are_those_of_pyg(name, aggr, monkeypatch):
    torch.manual_seed(0)
    own = pyg.EdgeConv(NETWORKS[name](), aggr=aggr).double()
    assert_same_numbers(monkeypatch, own, lambda: of(EdgeConv, own), features(NODES, FEATURES), edges_of())


def test_many_edges_in_float32(monkeypatch):
    torch.manual_seed(0)
    own = pyg.EdgeConv(pyg.MLP([WIDE, 64, 32], dropout=0.2, norm=None))
    x = features(NODES, FEATURES, dtype=torch.float32)
    assert_same_numbers(monkeypatch, own, lambda: of(EdgeConv, own), x, edges_of(200_000))


def test_filters_of_a_cf_conv(monkeypatch):
    torch.manual_seed(0)
    nn = Sequential(Linear(EDGE_DIM, HIDDEN), ShiftedSoftplus(), Dropout(0.3), Linear(HIDDEN, HIDDEN))
    own = PlainCFConv(FEATURES, OUT, HIDDEN, nn, cutoff=2.0).double()
    given = features(NODES, FEATURES), edges_of(), features(EDGES).abs(), features(EDGES, EDGE_DIM)
    assert_same_numbers(monkeypatch, own, lambda: of(CFConv, own), *given)


def test_matrices_of_an_nn_conv(monkeypatch):
    torch.manual_seed(0)
    nn = Sequential(Linear(EDGE_DIM, HIDDEN), ReLU(), Dropout(0.3), Linear(HIDDEN, FEATURES * OUT))
    own = pyg.NNConv(FEATURES, OUT, nn).double()
    given = features(NODES, FEATURES), edges_of(), features(EDGES, EDGE_DIM)
    assert_same_numbers(monkeypatch, own, lambda: of(NNConv, own), *given)


def test_nothing_drops_in_evaluation(monkeypatch):
    own = pyg.EdgeConv(NETWORKS['two']()).eval()
    fused, x = of(EdgeConv, own), features(NODES, FEATURES, dtype=torch.float32)
    with recorded(monkeypatch) as draws:
        found = fused(x, edges_of())
    assert not draws
    torch.testing.assert_close(found, own(x, edges_of()), rtol=1e-4, atol=1e-5)


def test_a_layer_that_goes_on_training_drops_anew():
    """A call like the one before is not looked at again, but draws."""
    conv, x, edge_index = EdgeConv(NETWORKS['two']()), features(NODES, FEATURES, dtype=torch.float32), edges_of()
    outs = [conv(x, edge_index) for _ in range(4)]
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(outs))
    conv.nn[2].p = 0.0
    conv.nn[5].p = 0.0
    assert torch.equal(conv(x, edge_index), conv(x, edge_index))


def test_a_checkpoint_drops_the_same():
    conv, found = EdgeConv(NETWORKS['two']()), []
    for run in (conv, lambda *given: checkpoint(conv, *given, use_reentrant=False)):
        torch.manual_seed(0)
        x = features(NODES, FEATURES, dtype=torch.float32).requires_grad_()
        run(x, edges_of()).square().sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def test_torch_compiles_it():
    conv, x, edge_index = EdgeConv(NETWORKS['two'](), aggr='sum'), features(NODES, FEATURES).float(), edges_of()
    compiled, found = torch.compile(conv, backend='aot_eager', fullgraph=True), []
    for run in (conv, compiled):
        torch.manual_seed(0)
        found.append(run(x, edge_index))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    assert not torch.equal(compiled(x, edge_index), found[1])


def test_a_model_is_fused():
    model = pygfuse.fuse(pyg.EdgeCNN(FEATURES, 16, num_layers=2, out_channels=4, dropout=0.5))
    conv = pygfuse.fuse(pyg.EdgeConv(pyg.MLP([WIDE, HIDDEN, OUT], dropout=0.5)))
    x, edge_index = features(NODES, FEATURES, dtype=torch.float32), edges_of()
    model(x, edge_index).sum().backward()
    conv(x, edge_index).sum().backward()
    assert conv.note.reason is None


def test_along_few_edges_pyg_s_operators_take_less(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_DROPPING', HIDDEN * 1000)
    conv, x, few = EdgeConv(NETWORKS['two']()), features(NODES, FEATURES, dtype=torch.float32), edges_of(900)
    for edge_index, is_fused in ((few, False), (few, False), (edges_of(1100), True), (edges_of(1100), True)):
        conv(x, edge_index)
        assert (conv.note.reason is None) is is_fused
    conv = EdgeConv(NETWORKS['two']()).eval()
    conv(x, few)
    assert conv.note.reason is None
