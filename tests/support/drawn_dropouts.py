"""The own code of a module with the dropouts that a fused one drew: by it both give the same numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import pygfuse.ops.edge_mlp.drops as drops
from pygfuse.compiler.plan.called import CALLED
from pygfuse.ops.dropout_draws import dropout_draws, edge_marks
from pygfuse.program.vocabulary import dropout_factor

Draws = dict[float, Tensor]


@contextlib.contextmanager
def recorded(monkeypatch: Any) -> Iterator[Draws]:
    """A ``with`` block around the making and the call of a fused module, which gives what each dropout drew by its
    probability: no two have the same."""
    found: Draws = {}

    def drawn(shape: tuple[int, ...], p: float, *others: Any) -> Tensor:
        found[p] = dropout_draws(shape, p, *others)
        return found[p]

    with monkeypatch.context() as patched:
        patched.setitem(CALLED, 'dropout_draws', drawn)
        patched.setattr(drops, 'dropout_draws', drawn)
        yield found


@contextlib.contextmanager
def given(monkeypatch: Any, draws: Draws) -> Iterator[None]:
    """A ``with`` block in which torch's dropouts of values of edges drop what was drawn."""

    def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0.0:
            return x
        marks = edge_marks(len(x), x.device, x.dtype, (1,) * (x.dim() - 1))
        return x * dropout_factor(marks, *draws[p].to(x.dtype))

    with monkeypatch.context() as patched:
        patched.setattr(torch.nn.functional, 'dropout', dropped)
        yield


def with_gradients(module: torch.nn.Module, x: Tensor, *others: Tensor) -> list[Tensor]:
    """The output of a module and the gradients of `x` and of all parameters, of a loss that weighs each number."""
    x = x.clone().requires_grad_()
    out = module(x, *others)
    weights = torch.linspace(-1.0, 2.0, out.numel(), dtype=out.dtype).view(out.shape)
    leaves = [x, *module.parameters()]
    return [out.detach(), *torch.autograd.grad((weights * out.square()).sum(), leaves, allow_unused=True)]


def assert_same_numbers(monkeypatch: Any, own: Any, fused: Any, *inputs: Tensor) -> None:
    """Asserts that a fused module gives its own code's output and gradients where that drops the same.

    Args:
        monkeypatch: pytest's.
        own: A module.
        fused: A function that makes the fused one, with the same parameters.
        inputs: What both are called with.
    """
    with recorded(monkeypatch) as draws:
        module = fused()
        found = with_gradients(module, *inputs)
    assert module.note.reason is None, module.note.reason
    assert draws
    with given(monkeypatch, draws):
        expected = with_gradients(own, *inputs)
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-9}[inputs[0].dtype]
    most = max(float(other.abs().max()) for other in expected)
    for one, other in zip(found, expected, strict=True):
        # what cancels to nothing, as the gradient of a bias before a normalisation, is what rounding leaves
        scale = max(float(other.abs().max()), 1e-5 * most) or 1.0
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=tolerance)
