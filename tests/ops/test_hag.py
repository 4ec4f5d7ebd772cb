from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from pygfuse.hag.hag import Hag
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.hag import hag_aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.transforms import find_hag
from tests.support.parity import GRAPHS, random_edges

REDUCTIONS = ('sum', 'mean', 'max', 'min')


def both(edge_index, num_sources: int, num_targets: int, width: int, reduce: str, hag: Hag, values=None):
    """Outputs and gradients over the graph and over the HAG, in float64."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_sources, width, generator=generator, dtype=torch.float64) if values is None else values
    grad = torch.randn(num_targets, width, generator=generator, dtype=torch.float64)
    x.requires_grad_()
    edges = Edges(edge_index, num_sources, num_targets)
    plain = aggregate(NEIGHBOURS, edges, {'x': x}, 1, width, reduce).flatten(1)
    found = hag_aggregate(hag, x, reduce)
    return [(out.detach(), torch.autograd.grad(out, x, grad)[0]) for out in (plain, found)]


def check(*arguments, **named) -> None:
    plain, found = both(*arguments, **named)
    for got, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize('reduce', REDUCTIONS)
@pytest.mark.parametrize('name', GRAPHS)
def test_equals_the_plain_path(name, reduce):
    example = GRAPHS[name]()
    sizes = example.num_sources, example.num_targets
    hag = find_hag(example.edge_index, sizes, capacity=None)
    check(example.edge_index, *sizes, 6, reduce, hag)


@settings(max_examples=40, deadline=None)
@given(
    sources=st.integers(1, 30),
    targets=st.integers(1, 30),
    degree=st.integers(0, 20),
    seed=st.integers(0, 2**20),
    reduce=st.sampled_from(REDUCTIONS),
    ties=st.booleans(),
)
def test_equals_the_plain_path_on_random_graphs(sources, targets, degree, seed, reduce, ties):
    edge_index = random_edges(sources, targets, degree * targets, seed)
    hag = find_hag(edge_index, (sources, targets), capacity=None)
    values = torch.randn(sources, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    check(edge_index, sources, targets, 6, reduce, hag, values.round() if ties else values)


def deep_hag():
    """Cliques, so that there are several levels, and a heavy row that is cut into parts."""
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40)).t()
    edge_index = torch.cat([pairs[:, pairs[0] != pairs[1]] + 40 * i for i in range(5)], dim=1)
    hub = torch.stack([torch.arange(60_000) % 200, torch.zeros(60_000, dtype=torch.int64)])
    edge_index = torch.cat([edge_index, hub], dim=1)
    return edge_index, find_hag(edge_index, 200, capacity=None)


@pytest.mark.parametrize('reduce', REDUCTIONS)
def test_several_levels_and_a_row_in_several_parts(reduce):
    edge_index, hag = deep_hag()
    assert hag.depth > 2
    check(edge_index, 200, 200, 6, reduce, hag)


def test_widths_beyond_what_registers_hold():
    edge_index, hag = deep_hag()
    for width in (1, 130):
        check(edge_index, 200, 200, width, 'sum', hag)
    check(edge_index, 200, 200, 130, 'max', hag)


def test_float32():
    edge_index, hag = deep_hag()
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    source, target = edge_index
    zeros = torch.zeros(200, 6)
    expected = zeros.double().index_add(0, target, x.double()[source])
    errors = [
        float((found.double() - expected).abs().max())
        for found in (hag_aggregate(hag, x), zeros.index_add(0, target, x[source]))
    ]
    assert errors[0] <= 2 * errors[1]


@pytest.mark.parametrize('reduce', REDUCTIONS)
def test_gradients(reduce):
    edge_index = random_edges(7, 6, 60)
    hag = find_hag(edge_index, (7, 6), capacity=None)
    x = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert hag.num_aggregation_nodes > 0
    assert gradcheck(lambda x: hag_aggregate(hag, x, reduce), x)
    assert gradgradcheck(lambda x: hag_aggregate(hag, x.square(), reduce), x)


def test_factors():
    edge_index = random_edges(7, 6, 60)
    hag = find_hag(edge_index, (7, 6), capacity=None)
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    f, r = torch.rand(7, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    expected = r[:, None] * hag_aggregate(hag, f[:, None] * x)
    found = hag_aggregate(hag, x, 'sum', f, r)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in (found, expected)]
    torch.testing.assert_close(*grads)
    with pytest.raises(ValueError, match='factors'):
        hag_aggregate(hag, x, 'max', f)


@pytest.mark.parametrize('reduce', ['sum', 'max'])
def test_the_same_bits_for_any_number_of_threads(reduce):
    edge_index, hag = deep_hag()
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(both(edge_index, 200, 200, 6, reduce, hag)[1])
    torch.set_num_threads(1)
    for out, grad in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(grad, found[0][1])


def test_nothing_of_aggregation_nodes_is_saved():
    from pygfuse.memory import saved_bytes

    _, hag = deep_hag()
    x = torch.randn(200, 6, requires_grad=True)
    assert saved_bytes(lambda: hag_aggregate(hag, x)) == 0
    # the result and its ties
    assert saved_bytes(lambda: hag_aggregate(hag, x, 'max'), exclude=[x]) == 2 * 200 * 6 * 4


def test_layers_take_the_same_memory_in_turn():
    _, hag = deep_hag()
    x = torch.randn(200, 6)
    for _ in range(3):
        hag_aggregate(hag, x)
    ((values,),) = hag.workspaces.values()
    assert values.shape == (1, hag.num_aggregation_nodes, 6)


def test_copies():
    _, hag = deep_hag()
    x = torch.randn(200, 6)
    expected = hag_aggregate(hag, x)
    for twin in (copy.deepcopy(hag), pickle.loads(pickle.dumps(hag))):
        assert torch.equal(hag_aggregate(twin, x), expected)
        assert twin.serial != hag.serial


def test_bad_input():
    _, hag = deep_hag()
    with pytest.raises(ValueError, match="'x'"):
        hag_aggregate(hag, torch.randn(7, 6))
    x = torch.randn(200, 6)
    with pytest.raises(ValueError, match="'reduce'"):
        hag_aggregate(hag, x, 'mul')
    for wrong in (x.half(), x.to('meta')):
        with pytest.raises(ValueError, match='type and on a device'):
            hag_aggregate(hag, wrong)
    for factors in (torch.rand(199), torch.rand(200, 1), torch.rand(200, dtype=torch.float64)):
        for name in ('factors', 'row_factors'):
            with pytest.raises(ValueError, match=f"'{name}' of shape"):
                hag_aggregate(hag, x, **{name: factors})


@pytest.mark.parametrize('reduce', ['max', 'min'])
@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_what_is_not_finite(value, reduce):
    edge_index, hag = deep_hag()
    values = torch.randn(200, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[70, 2] = value
    plain, found = both(edge_index, 200, 200, 6, reduce, hag, values=values)
    for got, expected in zip(found, plain, strict=True):
        assert torch.equal(got.isfinite(), expected.isfinite())
    assert not bool(plain[0].isfinite().all()) or (value == float('inf') and reduce == 'min')
    assert bool(plain[1].isfinite().all()) == (value == float('inf'))
