"""A program's values on all edges as an operator, which `torch.compile` traces."""

from __future__ import annotations

import pytest
import torch

from pygfuse.ops import Edges
from pygfuse.ops.given import given_of
from pygfuse.ops.traced_values import traced_values_along
from tests.ops.test_edge_values import GRAPHS
from tests.ops.test_values_along_edges import CHANNELS, HEADS, PROGRAMS, WIDTH, expected, made


def width_of(name):
    return HEADS if name == 'summed' else WIDTH


def run(name, edge_index, sizes, given):
    wanted = {key: tensor for key, tensor in given.items() if key in PROGRAMS[name].operands}
    edges = Edges(edge_index, *sizes)
    return traced_values_along(PROGRAMS[name], 'factor', edges, wanted, HEADS, CHANNELS, width_of(name))


@pytest.mark.parametrize('name', PROGRAMS)
@pytest.mark.parametrize('graph', GRAPHS)
def test_values_and_gradients(graph, name):
    edge_index, sizes = GRAPHS[graph]
    given = made(sizes, edge_index.shape[1])
    found, reference = run(name, edge_index, sizes, given), expected(name, edge_index, sizes, given)
    torch.testing.assert_close(found, reference)
    read = [tensor for key, tensor in given.items() if key in PROGRAMS[name].operands]
    grad = torch.randn(found.shape[::-1], dtype=found.dtype).t()
    for got, want in zip(*(torch.autograd.grad(out, read, grad) for out in (found, reference)), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize('wanted', ['x', 'x_dst e'])
def test_gradients_of_some_operands(wanted):
    edge_index, sizes = GRAPHS['random']
    results = []
    for compute in (run, expected):
        given = made(sizes, edge_index.shape[1])
        for key, tensor in given.items():
            tensor.requires_grad_(key in wanted.split())
        out = compute('product', edge_index, sizes, given)
        results.append(torch.autograd.grad(out.square().sum(), [given[key] for key in wanted.split()]))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


def test_the_operator_passes_torchs_own_checks():
    edge_index, sizes = GRAPHS['random']
    given = made(sizes, edge_index.shape[1], torch.float32)
    operands = given_of(PROGRAMS['product'], {key: given[key] for key in ('x', 'x_dst', 'e')})
    arguments = operands.arguments(Edges(edge_index, *sizes), HEADS, CHANNELS, 'sum', 0.0, None)
    leaves = [tensor.detach().requires_grad_() for tensor in arguments.tensors]
    arguments = arguments._replace(tensors=leaves)
    torch.library.opcheck(torch.ops.pygfuse.values_along.default, (*arguments, 'factor', WIDTH))


@pytest.mark.parametrize('dynamic', [pytest.param(False, marks=pytest.mark.slow), True])
def test_torch_compile_traces_it(dynamic):
    torch._dynamo.reset()
    traced = torch.compile(
        lambda x, x_dst, e, edge_index: run(
            'product', edge_index, (x.shape[0], x_dst.shape[0]), {'x': x, 'x_dst': x_dst, 'e': e}
        ).sigmoid(),
        fullgraph=True,
        backend='aot_eager',
        dynamic=dynamic,
    )
    for seed in range(2):
        edge_index = torch.randint(20 + seed, (2, 150 + seed))
        given = made((21 + seed, 21 + seed), 150 + seed)
        out = traced(given['x'], given['x_dst'], given['e'], edge_index)
        reference = expected('product', edge_index, (21 + seed, 21 + seed), given).sigmoid()
        torch.testing.assert_close(out, reference)
        read = [given[key] for key in ('x', 'x_dst', 'e')]
        for got, want in zip(*(torch.autograd.grad(one.square().sum(), read) for one in (out, reference)), strict=True):
            torch.testing.assert_close(got, want)


def test_wrong_operands_and_edges_are_errors():
    edge_index, sizes = GRAPHS['random']
    given = made(sizes, edge_index.shape[1])
    with pytest.raises(ValueError, match="'x_dst'"):
        run('product', edge_index, sizes, {**given, 'x_dst': given['x_dst'][1:]})
    with pytest.raises(ValueError, match="'e'"):
        run('product', edge_index, sizes, {**given, 'e': given['e'][1:]})
    with pytest.raises(ValueError, match='edge_index'):
        run('product', edge_index + sizes[0], sizes, given)
