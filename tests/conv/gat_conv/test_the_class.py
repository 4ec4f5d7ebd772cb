"""Constructor, text, state and copies of GATConv, and models that are made of it."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
import torch_geometric.nn
from torch_geometric.nn import GATConv as PyGATConv

import pygfuse
from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, FEATURES, RANDOM

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def test_constructor_is_that_of_pyg():
    assert inspect.signature(GATConv.__init__) == inspect.signature(PyGATConv.__init__)
    assert list(inspect.signature(GATConv.forward).parameters) == list(inspect.signature(PyGATConv.forward).parameters)
    assert issubclass(GATConv, PyGATConv)


@pytest.mark.parametrize(
    'options', [{}, {'edge_dim': 3, 'residual': True}, {'in_channels': (5, 6), 'bias': False}], ids=str
)
def test_state_and_text_are_those_of_pyg(options):
    torch.manual_seed(0)
    pyg = PyGATConv(**{**BASE, **options})
    torch.manual_seed(0)
    fused = GATConv(**{**BASE, **options})
    assert repr(fused) == repr(pyg)
    expected, got = pyg.state_dict(), fused.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    pyg.load_state_dict(fused.state_dict())


def saved_and_loaded(layer, path):
    torch.save(layer, path)
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize('way', ['deepcopy', 'pickle', 'torch.save'])
@pytest.mark.parametrize('after_a_call', [False, True])
def test_copies_compute_the_same(way, after_a_call, tmp_path):
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    if after_a_call:
        conv(x, edge_index).sum().backward()
    if way == 'deepcopy':
        twin = copy.deepcopy(conv)
    elif way == 'pickle':
        twin = pickle.loads(pickle.dumps(conv))
    else:
        twin = saved_and_loaded(conv, tmp_path / 'conv.pt')
    assert type(twin) is GATConv
    assert torch.equal(twin(x, edge_index), conv(x, edge_index))


def test_the_basic_model_of_pyg_runs_fused():
    torch.manual_seed(0)
    model = torch_geometric.nn.GAT(FEATURES, 16, num_layers=2, out_channels=3, heads=4, v2=False)
    twin = pygfuse.fuse(copy.deepcopy(model))
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    torch.testing.assert_close(twin(x, edge_index), model(x, edge_index))
    assert all(row.why_not is None for row in pygfuse.report(twin))
