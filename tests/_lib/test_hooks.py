from __future__ import annotations

import pytest
import torch
from torch.nn.modules import module as every_module

from pygfuse._lib.hooks import has_hooks
from pygfuse.conv import CGConv, EdgeConv, SAGEConv
from pygfuse.ops.nodes import linear
from pygfuse.ops.nodes.linear import apply_linear

KINDS = ('forward_hook', 'forward_pre_hook', 'full_backward_hook', 'full_backward_pre_hook')


@pytest.mark.parametrize('kind', KINDS)
def test_hooks_of_the_module(kind):
    module = torch.nn.Linear(2, 2)
    assert not has_hooks(module)
    handle = getattr(module, f'register_{kind}')(lambda *arguments: None)
    assert has_hooks(module)
    handle.remove()
    assert not has_hooks(module)


@pytest.fixture
def every_call():
    """The modules that a hook for all modules saw."""
    called = []
    handle = every_module.register_module_forward_hook(lambda module, *_: called.append(module))
    yield called
    handle.remove()


@pytest.mark.parametrize('kind', KINDS)
def test_hooks_of_all_modules(kind):
    module = torch.nn.Linear(2, 2)
    handle = getattr(every_module, f'register_module_{kind}')(lambda *arguments: None)
    try:
        assert has_hooks(module)
    finally:
        handle.remove()
    assert not has_hooks(module)


def test_they_see_the_linear_map_of_a_layer(every_call):
    conv = CGConv(4)
    conv(torch.randn(5, 4), torch.randint(5, (2, 9)))
    assert {conv.lin_f, conv.lin_s} <= set(every_call)
    assert conv.note.reason.startswith('a hook is registered on')


def test_they_see_the_linear_map_of_some_rows(every_call, monkeypatch):
    monkeypatch.setattr(linear, 'LEAST_BYTES', 0)
    module = torch.nn.Linear(3, 2)
    apply_linear(module, torch.randn(9, 3))
    assert every_call == [module]


def test_they_see_the_network_on_edges(every_call):
    nn = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    conv = EdgeConv(nn)
    conv(torch.randn(5, 4), torch.randint(5, (2, 9)))
    assert {nn, nn[0], nn[1]} <= set(every_call)
    assert conv.note.reason.startswith('a hook is registered on')


def test_they_see_the_lstm(every_call):
    conv = SAGEConv(4, 2, aggr='lstm')
    # all neighbours' lists begin alike
    conv(torch.randn(6, 4), torch.tensor([[0, 1, 2] * 5, [i // 3 for i in range(15)]]))
    assert {conv.aggr_module, conv.aggr_module.lstm} <= set(every_call)
    assert 'LSTM' in conv.note.reason
