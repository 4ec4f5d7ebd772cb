"""The eager path: when it is taken, and that autograd finds there what the operator gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from pygfuse.conv import GATConv, GINConv
from pygfuse.cpu.few_edges.listed_walks import Walks
from pygfuse.graph.graph import Graph
from pygfuse.memory import saved_bytes
from pygfuse.ops import Edges, aggregate, aggregate_with_weights, new_seed
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.program import Product
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS
from tests.support.operators import Names

HEADS, CHANNELS = 2, 4
EDGE_INDEX = torch.tensor([[0, 1, 2, 2, 3, 0], [1, 0, 1, 3, 3, 2]])


def edges() -> Edges:
    graph = Graph.of(EDGE_INDEX, num_sources=4, num_targets=4)
    return Edges(graph.token, 4, 4, walked=graph)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


def run_neighbours(x: Tensor, reduce: str = 'sum') -> Tensor:
    return aggregate(NEIGHBOURS, edges(), {'x': x}, HEADS, CHANNELS, reduce)


def run_gat(x: Tensor, alpha: Tensor, dropout: float = 0.0, seed: Tensor | None = None) -> Tensor:
    operands = {'x': x, 'alpha_src': alpha, 'alpha_dst': alpha, 'negative_slope': 0.2}
    return aggregate(GAT, edges(), operands, HEADS, CHANNELS, 'sum', dropout, seed)


def run_gatv2(x: Tensor, att: Tensor, features: Tensor, weight: Tensor) -> Tensor:
    operands = {'x': x, 'x_dst': x, 'att': att, 'edge': Product(features, weight), 'negative_slope': 0.2}
    return aggregate(GATV2, edges(), operands, HEADS, CHANNELS)


SEED = new_seed()
CALLS = {
    'sum': (run_neighbours, lambda: [leaf(4, HEADS * CHANNELS)]),
    'max': (lambda x: run_neighbours(x, 'max'), lambda: [leaf(4, HEADS * CHANNELS)]),
    'softmax': (run_gat, lambda: [leaf(4, HEADS, CHANNELS), leaf(4, HEADS)]),
    'dropout': (lambda *t: run_gat(*t, 0.5, SEED), lambda: [leaf(4, HEADS, CHANNELS), leaf(4, HEADS)]),
    'product': (
        run_gatv2,
        lambda: [leaf(4, HEADS, CHANNELS), leaf(1, HEADS, CHANNELS), leaf(6, 3), leaf(3, HEADS * CHANNELS)],
    ),
}


@pytest.fixture(params=CALLS)
def call(request) -> tuple[Callable, list[Tensor]]:
    torch.manual_seed(0)
    function, make = CALLS[request.param]
    return function, make()


@pytest.fixture
def by_operator(monkeypatch) -> Callable:
    def run(function: Callable):
        with monkeypatch.context() as patch:
            patch.setattr('pygfuse.ops.aggregation.is_watched', lambda tensors: True)
            return function()

    return run


def gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return torch.autograd.grad(out, inputs, torch.arange(out.numel(), dtype=out.dtype).view_as(out))


def test_the_same_bits_and_saved_bytes(call, by_operator, monkeypatch):
    # edges that are taken as they come have products of their own
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    function, inputs = call
    out, expected = function(*inputs), by_operator(lambda: function(*inputs))
    assert torch.equal(out, expected)
    for found, right in zip(gradients(out, inputs), gradients(expected, inputs), strict=True):
        assert torch.equal(found, right)
    assert saved_bytes(lambda: function(*inputs)) == by_operator(lambda: saved_bytes(lambda: function(*inputs)))


def test_no_operator_runs_and_no_graph_is_looked_up(call, monkeypatch):
    function, inputs = call
    known = edges()
    monkeypatch.setattr('tests.ops.test_eager.edges', lambda: known)
    for name in ('aggregate', 'aggregate_backward'):
        monkeypatch.setattr(getattr(torch.ops.pygfuse, name), '_op', None)
    monkeypatch.setattr(Graph, 'of', None)
    gradients(function(*inputs), inputs)


@pytest.mark.parametrize('reentrant', [True, False])
def test_checkpoints(call, reentrant):
    function, inputs = call
    again = gradients_of_leaves(lambda: checkpoint(function, *inputs, use_reentrant=reentrant), inputs)
    for found, right in zip(again, gradients_of_leaves(lambda: function(*inputs), inputs), strict=True):
        assert torch.equal(found, right)


def test_checkpoints_of_a_class_of_tensors():
    class Own(Tensor):
        pass

    x, alpha, scale = leaf(4, HEADS, CHANNELS), leaf(4, HEADS), torch.ones(1).as_subclass(Own)

    def run() -> Tensor:
        operands = {'x': x * scale, 'alpha_src': alpha, 'negative_slope': 0.2}
        out, weights = aggregate_with_weights(GAT, edges(), operands, HEADS, CHANNELS)
        return out.sum() + weights.square().sum()

    # torch leaves the class out while backward computes the checkpoint again
    again = gradients_of_leaves(lambda: checkpoint(run, use_reentrant=False).as_subclass(Own), [x, alpha])
    for found, right in zip(again, gradients_of_leaves(run, [x, alpha]), strict=True):
        torch.testing.assert_close(found, right)


def gradients_of_leaves(run: Callable, inputs: list[Tensor]) -> list[Tensor]:
    for tensor in inputs:
        tensor.grad = None
    run().square().sum().backward()
    return [tensor.grad for tensor in inputs]


def test_a_retained_graph_gives_the_same_again(call):
    function, inputs = call
    out = function(*inputs)
    first, second = (torch.autograd.grad(out.sum(), inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_batched_and_double_gradients(call, by_operator):
    function, inputs = call

    def both() -> list[Tensor]:
        out = function(*inputs)
        batch = torch.stack([torch.ones_like(out), torch.arange(out.numel(), dtype=out.dtype).view_as(out)])
        batched = torch.autograd.grad(out, inputs, batch, is_grads_batched=True, retain_graph=True)
        first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        return [*batched, *torch.autograd.grad(sum(t.square().sum() for t in first), inputs)]

    for found, right in zip(both(), by_operator(both), strict=True):
        torch.testing.assert_close(found, right)


def test_what_was_written_to_is_noticed():
    x, alpha = leaf(4, HEADS, CHANNELS), leaf(4, HEADS)
    given = x * 1
    out = run_gat(given, alpha)
    given.add_(1)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


def test_a_result_that_is_read_may_be_written_to():
    x, alpha = leaf(4, HEADS, CHANNELS), leaf(4, HEADS)
    found = torch.autograd.grad(run_gat(x, alpha).mul_(2).sum(), (x, alpha))
    torch.testing.assert_close(found, torch.autograd.grad((2 * run_gat(x, alpha)).sum(), (x, alpha)))


def test_a_sum_may_be_written_to():
    x = leaf(4, HEADS * CHANNELS)
    run_neighbours(x).mul_(2).sum().backward()
    assert torch.equal(x.grad, 2 * torch.autograd.grad(run_neighbours(x).sum(), x)[0])


def test_hooks_of_saved_tensors_see_each_once():
    x, alpha, packed, unpacked = leaf(4, HEADS, CHANNELS), leaf(4, HEADS), [], []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t) or t.clone(), lambda t: unpacked.append(t) or t
    ):
        out = run_gat(x, alpha)
    (expected,) = torch.autograd.grad(run_gat(x, alpha).sum(), x)
    assert not unpacked
    (found,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(found, expected)
    assert len(unpacked) == len(packed)


def test_only_what_is_needed_gets_a_gradient(monkeypatch):
    x, weight, asked = leaf(4, HEADS * CHANNELS), torch.ones(6, 1), []

    def spied(walks, *arguments):
        asked.append(arguments[6])
        return backward(walks, *arguments)

    backward = Walks.backward
    monkeypatch.setattr(Walks, 'backward', spied)
    operands = {'x': x, 'edge_weight': weight}
    aggregate(WEIGHTED_NEIGHBOURS, edges(), operands, 1, HEADS * CHANNELS).sum().backward()
    assert asked == [{'x'}]


def test_nothing_is_kept_where_no_gradient_is_needed():
    assert run_neighbours(torch.randn(4, HEADS * CHANNELS)).grad_fn is None
    with torch.no_grad():
        assert run_neighbours(leaf(4, HEADS * CHANNELS)).grad_fn is None
    with torch.inference_mode():
        assert run_neighbours(torch.randn(4, HEADS * CHANNELS)).is_inference()


def test_statistics_have_no_gradient():
    operands = {'x': leaf(4, HEADS, CHANNELS), 'alpha_src': leaf(4, HEADS), 'negative_slope': 0.2}
    out, weights = aggregate_with_weights(GAT, edges(), operands, HEADS, CHANNELS)
    (found,) = torch.autograd.grad(out.sum() + weights.square().sum(), operands['alpha_src'])
    assert found.abs().sum() > 0


def test_modes_see_the_operators():
    x = leaf(4, HEADS * CHANNELS)
    with Names() as forward:
        out = run_neighbours(x)
    assert any('pygfuse.aggregate' in name for name in forward.seen)
    eager = run_neighbours(x)
    with Names() as backward:
        found = gradients(eager, [x])
    assert any('pygfuse.aggregate_backward' in name for name in backward.seen)
    assert torch.equal(*found, *gradients(out, [x]))


def test_who_watches():
    class Own(Tensor):
        pass

    x = torch.ones(3)
    assert not is_watched([x, torch.nn.Parameter(x)])
    assert is_watched([x.as_subclass(Own)])
    assert is_watched([FakeTensorMode().from_tensor(x)])
    seen = []
    torch.func.grad(lambda y: seen.append(is_watched([x])) or y.sum())(x)
    with torch.autograd.forward_ad.dual_level():
        seen.append(is_watched([x]))
    torch.jit.trace(lambda y: seen.append(is_watched([x])) or y, x, check_trace=False)
    assert seen == [True, True, True]


@pytest.mark.parametrize('make', [lambda: GINConv(torch.nn.Linear(8, 8)), lambda: GATConv(8, 4, heads=2)])
def test_compiled_layers_run_the_operator(make):
    conv, x = make(), torch.randn(4, 8)
    compiled = torch.compile(conv, backend='aot_eager', fullgraph=True)
    torch.testing.assert_close(compiled(x, EDGE_INDEX), conv(x, EDGE_INDEX))


@pytest.mark.parametrize('reduce', ['max', 'min'])
def test_extremes_of_weights_by_softmax_are_refused(reduce):
    operands = {'x': leaf(4, HEADS, CHANNELS), 'alpha_src': leaf(4, HEADS), 'negative_slope': 0.2}
    with pytest.raises(ValueError, match="Expected 'reduce' to be 'sum' or 'mean'"):
        aggregate(GAT, edges(), operands, HEADS, CHANNELS, reduce)
