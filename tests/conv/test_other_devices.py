"""Tensors that no kernel can read, on devices without kernels and without memory of their own, take PyG's path."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import pygfuse
from tests.compiler import test_own_convs as own
from tests.compiler import test_published_convs as published
from tests.compiler.cases import CASES
from tests.support.cases import LAYERS
from tests.support.parity import GRAPHS

pytestmark = pytest.mark.filterwarnings('ignore')


def _compiled(case):
    return case.plain(**case.options), case.arguments(GRAPHS['random']())


def _written(layer):
    example = GRAPHS['random']()
    return layer.parity.pyg(**copy.deepcopy(layer.options)), {
        **layer.inputs(example),
        'edge_index': example.edge_index,
    }


def _own(name):
    kind, names = own.CONVS[name]
    return kind(), own.arguments(GRAPHS['random'](), names)


MAKERS = {
    **{str(case): (lambda case=case: _compiled(case)) for case in CASES},
    **{f'written {layer.name}': (lambda layer=layer: _written(layer)) for layer in LAYERS},
    **{f'own {name}': (lambda name=name: _own(name)) for name in own.CONVS},
    **{f'published {name}': (lambda name=name: published.made(name, 'random')) for name in published.LAYERS},
}


def _mapped(found: Any, function: Any) -> Any:
    if isinstance(found, Tensor):
        return function(found)
    if isinstance(found, (tuple, list)):
        return type(found)(_mapped(part, function) for part in found)
    if isinstance(found, dict):
        return {key: _mapped(part, function) for key, part in found.items()}
    return found


def _outcome(conv: torch.nn.Module, given: dict[str, Any], mode: Any) -> Any:
    """The shapes of what a layer gives, or the error: some of PyG's operators know no such tensors."""
    try:
        with mode:
            return _mapped(conv(**given), lambda tensor: tuple(tensor.shape))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize('name', MAKERS)
def test_devices_without_kernels(name):
    torch.manual_seed(0)
    conv, given = MAKERS[name]()
    given = {key: _mapped(value, lambda tensor: tensor.to('meta')) for key, value in given.items()}
    layers = copy.deepcopy(conv).to('meta'), pygfuse.fuse(copy.deepcopy(conv)).to('meta')
    expected, found = (_outcome(layer, given, contextlib.nullcontext()) for layer in layers)
    assert found == expected


@pytest.mark.parametrize('name', MAKERS)
def test_fake_tensors(name):
    torch.manual_seed(0)
    conv, given = MAKERS[name]()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = {key: _mapped(value, mode.from_tensor) for key, value in given.items()}
    expected, found = (_outcome(layer, given, mode) for layer in (copy.deepcopy(conv), pygfuse.fuse(conv)))
    assert found == expected


@pytest.mark.parametrize(
    'adjacency', [[[0, 1], [1, 0]], np.array([[0, 1], [1, 0]]), None], ids=['list', 'array', 'none']
)
def test_what_is_no_adjacency(adjacency):
    conv = pygfuse.fuse(torch_geometric.nn.TAGConv(8, 8, normalize=False))
    with pytest.raises(ValueError, match='only supports integer tensors'):
        conv(torch.randn(2, 8), adjacency)


def test_the_reasons():
    edge_index, x, fake = GRAPHS['random']().edge_index, torch.randn(60, 8), FakeTensorMode(allow_non_fake_inputs=True)
    conv = pygfuse.conv.GCNConv(8, 8, normalize=False)
    with fake:
        conv(fake.from_tensor(x), fake.from_tensor(edge_index))
    assert conv.note.reason == 'operators of a FakeTensor are its own'
    compiled = pygfuse.fuse(torch_geometric.nn.TAGConv(8, 8, normalize=False)).to('meta')
    compiled(x.to('meta'), edge_index.to('meta'))
    assert compiled.note.reason == "the device 'meta' has no fused kernels"
