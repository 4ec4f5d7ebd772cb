"""Runs of linear maps and activations in one kernel, forward and backward, alone and with tangents, beside autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pygfuse.cpu.networks.row_networks import ROW_PARTS, Applied, LinearMap, RowNetwork
from pygfuse.program.activation import Activation

SOFTPLUS, SILU = Activation('shifted_softplus', (0.5,)), Activation('silu')
NETWORKS = {
    'map first': (LinearMap(50, 128), Applied(SOFTPLUS, 128), LinearMap(128, 128)),
    'activation first': (Applied(SILU, 7), LinearMap(7, 130), Applied(SOFTPLUS, 130)),
    'rectified': (Applied(Activation('relu'), 16), LinearMap(16, 20), Applied(Activation('elu', (1.0, 1.5)), 20)),
    'narrow': (LinearMap(1, 3), Applied(SILU, 3), LinearMap(3, 1), Applied(SILU, 1)),
}


class Case:
    """A network with its tensors, and what autograd makes of them."""

    def __init__(self, name: str, rows: int, dtype: torch.dtype, with_tangents: bool) -> None:
        torch.manual_seed(0)
        self.stages, self.rows, self.dtype, self.with_tangents = NETWORKS[name], rows, dtype, with_tangents
        self.copies = 2 if with_tangents else 1
        maps = [stage for stage in self.stages if isinstance(stage, LinearMap)]
        self.weights = [torch.randn(m.after, m.before, dtype=dtype) / m.before**0.5 for m in maps]
        self.biases = [torch.randn(m.after, dtype=dtype) for m in maps]
        widths = [getattr(stage, 'after', None) or stage.width for stage in self.stages]
        first = self.stages[0]
        widths.insert(0, first.before if isinstance(first, LinearMap) else first.width)
        self.before = self._randn(widths[0])
        self.grad = self._randn(widths[-1])
        self.held = [self.before, *(self._randn(width) for width in widths[1:])]
        self.grads = [self._randn(m.before) for m in maps]

    def _randn(self, width: int) -> Tensor:
        found = torch.randn(self.copies, self.rows, width, dtype=self.dtype)
        return found if self.with_tangents else found[0]

    def run(self, values_alone: bool = False) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """What is after the last stage, and the gradients before the first, of weights and of biases."""
        network = RowNetwork(self.stages, self.dtype, self.with_tangents, values_alone)
        network.forward(self.rows, self.held, [w.t().contiguous() for w in self.weights], self.biases)
        of_weights, of_biases = ([t.new_zeros(ROW_PARTS, *t.shape) for t in ts] for ts in (self.weights, self.biases))
        grads = [*self.grads, self.grad.clone()]
        network.backward(self.rows, self.held[: len(self.stages)], self.weights, grads, of_weights, of_biases)
        return self.held[-1], grads[0], *([t.sum(dim=0) for t in ts] for ts in (of_weights, of_biases))

    def expected(self) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        def network(values: Tensor) -> Tensor:
            given = iter(zip(weights, biases, strict=True))
            for stage in self.stages:
                values = stage.activation(values) if isinstance(stage, Applied) else _mapped(values, *next(given))
            return values

        before, grad, *rest = (t.double() for t in (self.before, self.grad, *self.weights, *self.biases))
        leaves = [t.requires_grad_() for t in (before, *rest)]
        weights, biases = leaves[1 : 1 + len(self.weights)], leaves[1 + len(self.weights) :]
        if self.with_tangents:
            _, moved = torch.autograd.functional.jvp(network, before[0], before[1], create_graph=True)
            out = torch.stack([network(before[0]), moved])
        else:
            out = network(before)
        of_before, *found = torch.autograd.grad(out, leaves, grad)
        return out, of_before, found[: len(weights)], found[len(weights) :]


def _mapped(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return values @ weight.t() + bias


@pytest.mark.parametrize('with_tangents', [False, True], ids=['values', 'tangents'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize('rows', [1, 5, 1000])
@pytest.mark.parametrize('name', NETWORKS)
def test_values_and_gradients(name, rows, dtype, with_tangents):
    case = Case(name, rows, dtype, with_tangents)
    for found, right in zip(case.run(), case.expected(), strict=True):
        for one, other in zip(*([t] if isinstance(t, Tensor) else t for t in (found, right)), strict=True):
            scale = other.abs().max().item()
            tolerance = (2e-6 if dtype == torch.float32 else 1e-13) * max(1.0, scale)
            torch.testing.assert_close(one.double(), other, rtol=0.0, atol=tolerance)


def test_gradients_of_values_alone():
    case = Case('map first', 100, torch.float64, True)
    _, both, *_ = case.run()
    both = both.clone()
    case.grads[0].fill_(7.0)
    _, alone, *_ = case.run(values_alone=True)
    assert alone[0].equal(both[0])
    assert (alone[1] == 7.0).all()


def test_nothing_that_nobody_wants():
    case = Case('map first', 100, torch.float64, False)
    _, _, of_weights, _ = case.run()
    network = RowNetwork(case.stages, case.dtype)
    grads = [None, case.grads[1], case.grad.clone()]
    only = torch.zeros(ROW_PARTS, *case.weights[0].shape, dtype=case.dtype)
    network.backward(case.rows, case.held[:3], case.weights, grads, [only, None], [None, None])
    assert only.sum(dim=0).equal(of_weights[0])


@pytest.mark.parametrize('with_tangents', [False, True], ids=['values', 'tangents'])
def test_threads_change_no_bit(with_tangents):
    case = Case('map first', 1000, torch.float32, with_tangents)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            out, of_before, of_weights, of_biases = case.run()
            found.append([t.clone() for t in (out, of_before, *of_weights, *of_biases)])
    finally:
        torch.set_num_threads(before)
    assert all(one.equal(other) for one, other in zip(*found, strict=True))


def test_what_is_left_to_libraries():
    taken = (LinearMap(64, 128), Applied(SILU, 128))
    assert RowNetwork(taken, torch.float32).is_taken()
    assert not RowNetwork(taken[:1], torch.float32).is_taken()
    assert not RowNetwork(taken[1:], torch.float32).is_taken()
    assert not RowNetwork((LinearMap(64, 512), Applied(SILU, 512)), torch.float32).is_taken()


@pytest.mark.parametrize('act', [Activation('relu'), Activation('leaky_relu', (0.2,)), Activation('silu')], ids=str)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_what_is_no_number_is_as_in_torch(act, dtype):
    values = torch.tensor([torch.nan, 0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf], dtype=dtype).repeat(3, 5)
    grad, held = torch.full_like(values, 3.0), [values, torch.empty_like(values)]
    network = RowNetwork((Applied(act, 35),), dtype)
    network.forward(3, held, [], [])
    network.backward(3, held, [], [grad, grad], [], [])
    expected = act(values.requires_grad_())
    torch.testing.assert_close(held[1], expected.detach(), equal_nan=True)
    (of_values,) = torch.autograd.grad(expected, values, torch.full_like(values, 3.0))
    torch.testing.assert_close(grad, of_values, equal_nan=True)
