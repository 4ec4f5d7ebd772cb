"""Memory that runs out anywhere in a step: the same step works afterwards, on the same layer and the same edges."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pygfuse
from pygfuse.graph.attached import ATTACHED
from pygfuse.hag.attach import attach
from pygfuse.transforms import find_hag
from tests.support import cases as table
from tests.support.faults import of_torch, out_of_memory
from tests.support.parity import random_edges

NODES = 30
EDGES = random_edges(NODES, NODES, 120)
EXAMPLE = table.square(EDGES, NODES)
LAYERS = {
    name: table.EVERY[name]
    for name in ('GATConv with edge_attr', 'GCNConv with edge_weight', 'SAGEConv, max', 'CGConv with edge_attr')
} | {'EdgeConv, two maps, max': table.EDGE_NETWORKS['EdgeConv, two maps, max']}


def step(conv: Any, edge_index: Tensor, inputs: dict[str, Tensor]) -> list[Tensor]:
    """The output and all gradients."""
    torch.manual_seed(0)
    given = {name: value.detach().clone().requires_grad_() for name, value in inputs.items()}
    out = conv(edge_index=edge_index, **given)
    wanted = [*given.values(), *conv.parameters()]
    return [out.detach(), *torch.autograd.grad(out.square().sum(), wanted)]


def check(
    make: Callable[[], Any], edges: Callable[[], Tensor], inputs: dict[str, Tensor], error: type[Exception]
) -> None:
    """Runs a step that fails, at every place where it can, and then again."""
    expected = step(make(), edges(), inputs)
    gc.collect()
    known = len(ATTACHED)
    for place in itertools.count():
        conv, edge_index = make(), edges()
        with out_of_memory(place, of_torch, error) as failure, contextlib.suppress(error):
            step(conv, edge_index, inputs)
        for got, wanted in zip(step(conv, edge_index, inputs), expected, strict=True):
            assert torch.equal(got, wanted), f'after call {place} failed'
        del conv, edge_index
        if not failure.happened:
            break
    assert place > 10
    gc.collect()
    assert len(ATTACHED) == known


@pytest.mark.parametrize(
    'name', [name if name == 'SAGEConv, max' else pytest.param(name, marks=pytest.mark.slow) for name in LAYERS]
)
def test_a_step_after_one_that_failed(name):
    layer = LAYERS[name]
    conv, inputs = layer.fused(), layer.inputs(EXAMPLE)
    check(lambda: copy.deepcopy(conv), EDGES.clone, inputs, MemoryError)


@pytest.mark.slow
@pytest.mark.parametrize('block', ['used_once', 'edge', 'paths', 'no recomputation'])
def test_a_step_in_other_ways(block):
    blocks = {
        'used_once': pygfuse.used_once,
        'edge': lambda: pygfuse.force_mapping(pygfuse.Mapping('edge', part_work=8)),
        'paths': lambda: pygfuse.execution_paths(True),
        'no recomputation': lambda: pygfuse.ablation(recomputation=False),
    }
    layer = table.SAGE if block == 'used_once' else table.GAT
    conv, inputs = layer.fused(), layer.inputs(EXAMPLE)
    with blocks[block]():
        # torch's own message is a RuntimeError
        check(lambda: copy.deepcopy(conv), EDGES.clone, inputs, RuntimeError)


def test_a_step_over_a_hag():
    hag = find_hag(EDGES, NODES, capacity=None, progress=False)

    def edges() -> Tensor:
        edge_index = EDGES.clone()
        attach(edge_index, copy.deepcopy(hag))
        return edge_index

    conv = table.SAGE.fused()
    check(lambda: copy.deepcopy(conv), edges, table.SAGE.inputs(EXAMPLE), MemoryError)
    assert conv.note.hag is None


def test_rows_that_are_read_after_a_failure():
    conv, mask = table.GAT.fused(), torch.arange(NODES) < 7
    x = table.GAT.inputs(EXAMPLE)['x']

    def run(edge_index: Tensor) -> list[Tensor]:
        given = x.clone().requires_grad_()
        with pygfuse.active(mask):
            out = conv(given, edge_index)
            read = out[mask]
        return [read.detach(), *torch.autograd.grad(read.square().sum(), [given, *conv.parameters()])]

    expected = run(EDGES.clone())
    with out_of_memory(None) as failure:
        run(EDGES.clone())
    for place in range(failure.calls):
        edge_index = EDGES.clone()
        with out_of_memory(place) as failed, pytest.raises(MemoryError):
            run(edge_index)
        assert failed.happened
        for got, wanted in zip(run(edge_index), expected, strict=True):
            assert torch.equal(got, wanted), f'after call {place} failed'


def test_nothing_fails_by_itself():
    with out_of_memory(0, lambda frame, function: False) as failure:
        torch.zeros(3)
    assert failure.calls == 0
    assert not failure.happened
