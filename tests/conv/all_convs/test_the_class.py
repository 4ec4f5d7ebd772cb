"""Constructors, texts, copies and swaps of every convolution."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch_geometric.nn.conv.utils import cheatsheet

import pygfuse
from pygfuse.swap import FUSED_CLASSES
from tests.support.all_convs import RANDOM, every

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


@every
def test_constructor_and_text_are_those_of_pyg(layer):
    kinds = layer.parity.pyg, layer.parity.fused
    assert issubclass(kinds[1], kinds[0])
    assert inspect.signature(kinds[1].__init__) == inspect.signature(kinds[0].__init__)
    # a signature may be said to be another
    codes = [kind.forward.__code__ for kind in kinds]
    assert len({code.co_varnames[: code.co_argcount] for code in codes}) == 1
    torch.manual_seed(0)
    pyg = kinds[0](**copy.deepcopy(layer.options))
    torch.manual_seed(0)
    fused = kinds[1](**copy.deepcopy(layer.options))
    assert repr(fused) == repr(pyg)
    expected, got = pyg.state_dict(), fused.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    pyg.load_state_dict(fused.state_dict())


@every
@pytest.mark.parametrize('after_a_call', [False, True])
def test_copies_compute_the_same(after_a_call, layer):
    conv = layer.fused().double()
    inputs = {name: value.requires_grad_() for name, value in layer.inputs(RANDOM, dtype=torch.float64).items()}
    if after_a_call:
        conv(edge_index=RANDOM.edge_index, **inputs).sum().backward()
    expected = conv(edge_index=RANDOM.edge_index, **inputs)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert type(twin) is layer.parity.fused
        assert torch.equal(twin(edge_index=RANDOM.edge_index, **inputs), expected)


@every
def test_swapping_there_and_back(layer):
    pyg, _ = layer.pair(torch.float64)
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    expected = pyg(edge_index=RANDOM.edge_index, **inputs)
    fused = pygfuse.fuse(copy.deepcopy(pyg))
    assert type(fused) is layer.parity.fused
    torch.testing.assert_close(fused(edge_index=RANDOM.edge_index, **inputs), expected)
    (row,) = pygfuse.report(fused)
    assert row.why_not is None
    assert torch.equal(pygfuse.unfuse(fused)(edge_index=RANDOM.edge_index, **inputs), expected)


# of PyG's layers, which the classes of its models are not among
NAMES = [plain.__name__ for plain in FUSED_CLASSES if plain.__module__.startswith('torch_geometric.nn.conv.')]
SUPPORTS = [name for name in vars(cheatsheet) if name.startswith(('supports', 'processes'))]


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('helper', ['paper_title', 'paper_link', *SUPPORTS])
def test_the_cheat_sheet_of_pyg_says_the_same(helper, name, monkeypatch):
    expected = getattr(cheatsheet, helper)(name)
    monkeypatch.setattr(f'torch_geometric.nn.conv.{name}', getattr(pygfuse.conv, name))
    assert getattr(cheatsheet, helper)(name) == expected
    assert expected is not None or name == 'FastRGCNConv'
