"""Threads may call one layer at the same time, each with what it likes."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import pygfuse
from tests.support.parity import random_edges

NODES, TARGETS, CHANNELS, EDGES = 30, 12, 8, 100
X, OTHERS = torch.randn(NODES, CHANNELS), torch.randn(TARGETS, CHANNELS)
EDGE_INDEX, BETWEEN = random_edges(NODES, NODES, EDGES), random_edges(NODES, TARGETS, EDGES)
PLAIN, OF_SETS = (X, EDGE_INDEX), ((X, OTHERS), BETWEEN)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * CHANNELS, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CHANNELS))


# a layer, and calls of it that run in other ways
LAYERS = {
    'gat': (lambda: pyg.GATConv(CHANNELS, 4, heads=2, edge_dim=4), [PLAIN, (*PLAIN, torch.randn(EDGES, 4)), OF_SETS]),
    'gcn': (lambda: pyg.GCNConv(CHANNELS, CHANNELS), [PLAIN, (*PLAIN, torch.rand(EDGES))]),
    'gin': (lambda: pyg.GINConv(nn.Linear(CHANNELS, CHANNELS)), [PLAIN, OF_SETS]),
    'graph': (lambda: pyg.GraphConv(CHANNELS, CHANNELS), [PLAIN, (*PLAIN, torch.rand(EDGES)), OF_SETS]),
    'edge': (lambda: pyg.EdgeConv(network()), [PLAIN, OF_SETS]),
    'gated': (lambda: pyg.ResGatedGraphConv(CHANNELS, CHANNELS), [PLAIN, OF_SETS]),
    'compiled': (lambda: pyg.TAGConv(CHANNELS, CHANNELS), [PLAIN, (*PLAIN, torch.rand(EDGES))]),
}
every = pytest.mark.parametrize('name', LAYERS)


def step(conv: nn.Module, call: tuple) -> list[torch.Tensor | None]:
    out = conv(*call)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), list(conv.parameters()), allow_unused=True)]


def assert_are_close(found: list, expected: list) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('name', [name for name in LAYERS if name != 'compiled'])
def test_another_call_between_the_look_at_a_call_and_its_run(name, monkeypatch):
    """As a thread that is stopped there would find the layer."""
    make, calls = LAYERS[name]
    plain = make()
    expected = [step(plain, call) for call in calls]
    conv = pygfuse.fuse(plain)
    few_edges, between = type(conv).few_edges, []

    def stopped(self, *arguments):
        found = few_edges(self, *arguments)
        while between:
            conv(*between.pop())
        return found

    monkeypatch.setattr(type(conv), 'few_edges', stopped)
    for call, wanted in zip(calls, expected, strict=True):
        for other in calls:
            conv(*call)
            between.append(other)
            assert_are_close(step(conv, call), wanted)
            assert conv.note.reason is None
            assert not between


@every
def test_several_threads_at_once(name):
    make, calls = LAYERS[name]
    plain = make()
    expected = [step(plain, call) for call in calls]
    conv, errors, barrier = pygfuse.fuse(plain), [], threading.Barrier(4)

    def run(first: int) -> None:
        barrier.wait()
        try:
            for i in range(first, first + 20):
                assert_are_close(step(conv, calls[i % len(calls)]), expected[i % len(calls)])
        except Exception as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors
