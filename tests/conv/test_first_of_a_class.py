"""PyG writes `propagate` for the first layer of a class in the process; later ones may have other options."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch
import torch_geometric

import pygfuse
from tests.support.all_convs import RANDOM
from tests.support.torchscript import HAS_TORCHSCRIPT

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:.*torch.jit.script.* is deprecated')

_NUMBERS = itertools.count()


def _of_a_new_class(first: dict[str, object], then: dict[str, object]) -> torch.nn.Module:
    # PyG keeps what it writes by the names of classes
    kind = type(f'Own{next(_NUMBERS)}', (pygfuse.conv.GCNConv,), {})
    kind(3, 4, bias=False, **first)
    return kind(3, 4, bias=False, **then)


def _matrix() -> torch.Tensor:
    size = (RANDOM.num_targets, RANDOM.num_sources)
    weight = torch.ones(RANDOM.edge_index.shape[1])
    return torch.sparse_coo_tensor(RANDOM.edge_index.flip(0), weight, size).coalesce().to_sparse_csr()


@pytest.mark.parametrize('first', ['std', ['mean', 'max']], ids=str)
@pytest.mark.parametrize('then', ['max', 'add'])
def test_a_layer_runs_as_a_product_after_one_that_cannot(first, then):
    conv = _of_a_new_class({'aggr': first, 'normalize': False}, {'aggr': then, 'normalize': False})
    plain = torch_geometric.nn.GCNConv(3, 4, aggr=then, normalize=False, bias=False)
    plain.load_state_dict(conv.state_dict())
    x = torch.randn(RANDOM.num_sources, 3)
    torch.testing.assert_close(conv(x, _matrix()), plain(x, _matrix()))


@HAS_TORCHSCRIPT
@pytest.mark.parametrize('first', ['add', ['mean', 'max']], ids=str)
@pytest.mark.parametrize('then', ['add', 'softmax', ['mean', 'max']], ids=str)
def test_torchscript_compiles_layers_that_run_as_no_product(first, then):
    conv = _of_a_new_class({'aggr': first}, {'aggr': then})
    x = torch.randn(RANDOM.num_sources, 3)
    expected = conv(x, RANDOM.edge_index)
    scripted = torch.jit.script(torch.nn.ModuleDict({'conv': conv})).conv
    torch.testing.assert_close(scripted(x, RANDOM.edge_index), expected)


def test_layers_after_one_of_the_class_behind_all_others():
    """PyG writes a ``propagate`` for `MessagePassing` itself, once somebody makes a layer of it."""
    code = """
import torch
from torch_geometric.nn import MessagePassing
import pygfuse
MessagePassing(aggr='mean')
conv = pygfuse.conv.GATConv(4, 4)
given = torch.randn(3, 4), torch.tensor([[0, 1, 2], [1, 2, 0]])
torch.testing.assert_close(conv(*given), pygfuse.unfuse(conv)(*given))
"""
    subprocess.run([sys.executable, '-c', code], check=True, capture_output=True)
