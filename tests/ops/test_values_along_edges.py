"""A program's values on all edges: they, their gradients and the gradients of these."""

from __future__ import annotations

import pytest
import torch

from pygfuse import ablation
from pygfuse.memory import peak_bytes, saved_bytes
from pygfuse.ops import Edges
from pygfuse.ops.values_along_edges import has_values_along, values_along
from pygfuse.program.products import Product
from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import sum_channels, tanh
from tests.ops.test_edge_values import GRAPHS
from tests.support.parity import random_edges

HEADS, CHANNELS = 2, 3
WIDTH = HEADS * CHANNELS
ENDS = {'source': 'x', 'target': 'x_dst', 'edge': 'e factor'}

PROGRAMS = {
    'sum': EdgeProgram('test_values_sum', operands(**ENDS), lambda x, x_dst, e, factor: factor * (x - x_dst + e)),
    'product': EdgeProgram(
        'test_values_product', operands(**ENDS), lambda x, x_dst, e, factor: tanh(x * x_dst + 0.5 * e) * factor
    ),
    'weighed': EdgeProgram(
        'test_values_weighed',
        operands(**ENDS, edge_heads='w', source_heads='s'),
        score=lambda w, s: w * s,
        message=lambda weight, x, x_dst, e, factor: weight * (x + x_dst * e) * factor,
    ),
    'scored': EdgeProgram(
        'test_values_scored',
        operands(**ENDS),
        score=lambda x, e: sum_channels(x * e),
        message=lambda weight, x_dst, factor: weight * x_dst * factor,
    ),
    'summed': EdgeProgram(
        'test_values_summed',
        operands(source='x', target='x_dst', edge='e', edge_heads='factor'),
        score=lambda factor: factor,
        message=lambda weight, x, x_dst, e: weight * (x * x_dst + e),
    ),
}
VALUES = {
    'sum': lambda x, x_dst, e, w, s: x - x_dst + e,
    'product': lambda x, x_dst, e, w, s: torch.tanh(x * x_dst + 0.5 * e),
    'scored': lambda x, x_dst, e, w, s: _summed(x * e) * x_dst,
    'summed': lambda x, x_dst, e, w, s: (x * x_dst + e).view(-1, HEADS, CHANNELS).sum(dim=-1),
    'weighed': lambda x, x_dst, e, w, s: (w * s).repeat_interleave(CHANNELS, dim=1) * (x + x_dst * e),
}


def _summed(x):
    """The sum over the channels of each head, for each of these."""
    return x.view(-1, HEADS, CHANNELS).sum(dim=-1).repeat_interleave(CHANNELS, dim=1)


@pytest.fixture(params=[True, False], ids=['as they come', 'sorted'])
def few(request):
    """Few edges are walked as they come, or sorted as many are."""
    if request.param:
        request.getfixturevalue('at_once')


def made(sizes, num_edges, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = {'x': (sizes[0], WIDTH), 'x_dst': (sizes[1], WIDTH), 'e': (num_edges, WIDTH), 'w': (num_edges, HEADS)}
    shapes['s'] = (sizes[0], HEADS)
    return {n: torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for n, s in shapes.items()}


def run(name, edge_index, sizes, given):
    declared = PROGRAMS[name].operands
    wanted = {key: tensor for key, tensor in given.items() if key in declared}
    return values_along(PROGRAMS[name], 'factor', Edges(edge_index, *sizes), wanted, HEADS, CHANNELS)


def expected(name, edge_index, sizes, given):
    source, target = edge_index.long()
    rows = given['x'][source], given['x_dst'][target], given['e'], given['w'], given['s'][source]
    return VALUES[name](*rows)


@pytest.mark.parametrize('name', PROGRAMS)
@pytest.mark.parametrize('graph', [name for name in GRAPHS if name != 'no edges'])
def test_values_and_gradients(graph, name, few):
    edge_index, sizes = GRAPHS[graph]
    given = made(sizes, edge_index.shape[1])
    found, reference = run(name, edge_index, sizes, given), expected(name, edge_index, sizes, given)
    torch.testing.assert_close(found, reference)
    with torch.no_grad():
        assert torch.equal(run(name, edge_index, sizes, given), found)
    read = [tensor for key, tensor in given.items() if key in PROGRAMS[name].operands]
    grad = torch.randn(found.shape[::-1], dtype=found.dtype).t()
    for got, want in zip(*(torch.autograd.grad(out, read, grad) for out in (found, reference)), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize('name', PROGRAMS)
def test_gradients_of_gradients(name, few):
    edge_index, sizes = GRAPHS['random']
    given = made(sizes, edge_index.shape[1])
    names = [key for key in given if key in PROGRAMS[name].operands]

    def compute(*tensors):
        return run(name, edge_index, sizes, dict(zip(names, tensors, strict=True)))

    tensors = [given[key] for key in names]
    assert torch.autograd.gradcheck(compute, tensors)
    assert torch.autograd.gradgradcheck(compute, tensors)


@pytest.mark.parametrize('name', PROGRAMS)
@pytest.mark.parametrize('wanted', ['x', 'x_dst', 'e', 'x e'])
def test_gradients_of_some_operands_again(name, wanted, few):
    edge_index, sizes = GRAPHS['random']
    results = []
    for compute in (run, expected):
        given = made(sizes, edge_index.shape[1])
        for key, tensor in given.items():
            tensor.requires_grad_(key in wanted.split())
        kept = [given[key] for key in wanted.split()]
        out = compute(name, edge_index, sizes, given)
        first = torch.autograd.grad(out.square().sum(), kept, create_graph=True)
        results.append([*first, *torch.autograd.grad(sum(one.square().sum() for one in first), kept)])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize('name', PROGRAMS)
def test_batches_of_gradients(name, few):
    edge_index, sizes = GRAPHS['random']
    given = made(sizes, edge_index.shape[1])
    read = [tensor for key, tensor in given.items() if key in PROGRAMS[name].operands]
    outs = run(name, edge_index, sizes, given), expected(name, edge_index, sizes, given)
    grads = torch.randn(4, *outs[0].shape, dtype=outs[0].dtype)
    found, reference = (torch.autograd.grad(out, read, grads, is_grads_batched=True) for out in outs)
    for got, want in zip(found, reference, strict=True):
        torch.testing.assert_close(got, want)


def test_features_times_a_weight(few):
    edge_index, sizes = GRAPHS['random']
    given = made(sizes, edge_index.shape[1])
    features, weight = (torch.randn(*shape, dtype=torch.float64) for shape in ((edge_index.shape[1], 2), (2, WIDTH)))
    product = Product(features.requires_grad_(), weight.requires_grad_())
    found = run('product', edge_index, sizes, {**given, 'e': product})
    reference = expected('product', edge_index, sizes, {**given, 'e': features @ weight})
    torch.testing.assert_close(found, reference)
    tensors, grad = [given['x'], features, weight], torch.randn_like(reference)
    for got, want in zip(*(torch.autograd.grad(out, tensors, grad) for out in (found, reference)), strict=True):
        torch.testing.assert_close(got, want)


def test_a_sum_saves_nothing_and_hands_its_gradient_on():
    edge_index, sizes = random_edges(50, 50, 4000), (50, 50)
    given = made(sizes, 4000, torch.float32)
    edges_alone = {'e': given['e'], 'x': given['x'].detach(), 'x_dst': given['x_dst'].detach()}

    def forward():
        return run('sum', edge_index, sizes, given)

    grad = torch.randn(4000, WIDTH)
    forward()  # sorts the edges
    assert saved_bytes(forward, exclude=[edge_index]) == 0
    out = run('sum', edge_index, sizes, edges_alone)
    # a leaf's gradient is a copy, as of any sum
    assert peak_bytes(lambda: torch.autograd.grad(out, given['e'], grad)) <= grad.nbytes


def test_the_user_may_not_write_to_edges_before_backward(few):
    edge_index, sizes = random_edges(7, 6, 23), (7, 6)
    given = made(sizes, 23)
    out = run('product', edge_index, sizes, given)
    edge_index[0, 0] = (edge_index[0, 0] + 1) % 7
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


def test_an_edge_that_names_no_node(few):
    edge_index = torch.tensor([[0, 7], [1, 2]])
    with pytest.raises(ValueError, match='7'):
        run('sum', edge_index, (7, 6), made((7, 6), 2))


def test_operands_of_other_shapes():
    edge_index, sizes = GRAPHS['random']
    given = made(sizes, edge_index.shape[1])
    with pytest.raises(ValueError, match=r"Expected 'x_dst' to hold 6 values for each of 6 target rows"):
        run('sum', edge_index, sizes, {**given, 'x_dst': given['x']})


def test_what_has_no_such_values():
    edge_index, sizes = GRAPHS['random']
    x = torch.ones(1)
    form = [x], 1, 1
    assert has_values_along(Edges(edge_index, *sizes), *form)
    assert not has_values_along(Edges(edge_index, *sizes), [x], 1, 0)
    assert not has_values_along(Edges(edge_index[:, :0], *sizes), *form)
    assert not has_values_along(Edges(edge_index, 7, 7, loops=7), *form)
    with torch.autocast('cpu', torch.bfloat16):
        assert not has_values_along(Edges(edge_index, *sizes), *form)
    with ablation(fusion=False):
        assert not has_values_along(Edges(edge_index, *sizes), *form)
