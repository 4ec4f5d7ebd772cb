"""What stands around the operators of a message: checkpoints, other types, questions about tensors."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.utils.checkpoint
from torch.nn import Linear, Parameter, ReLU, Sequential
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.compiler import Given
from pygfuse.compiler.capture.layers import capture
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS

WIDTH = 8


class Network(Own):
    def __init__(self, reentrant: bool = False):
        super().__init__()
        self.nn, self.reentrant = Sequential(Linear(2 * WIDTH, WIDTH), ReLU(), Linear(WIDTH, WIDTH)), reentrant


class Checkpointed(Network):
    def message(self, x_i, x_j):
        return checkpoint(self.nn, torch.cat([x_i, x_j], dim=-1), use_reentrant=self.reentrant)


class ByTheModule(Network):
    def message(self, x_i, x_j):
        row = torch.cat([x_i, x_j], dim=-1)
        return torch.utils.checkpoint.checkpoint(self.nn, row, use_reentrant=self.reentrant, preserve_rng_state=False)


class Cast(Network):
    def message(self, x_i, x_j):
        with torch.autocast('cpu', dtype=torch.bfloat16):
            return self.nn(torch.cat([x_i, x_j], dim=-1))


class Asking(Own):
    """A message that asks what it is given."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(torch.randn(WIDTH))

    def message(self, x_i, x_j):
        found = x_j * (2.0 if isinstance(x_j, torch.Tensor) and not isinstance(x_j, Parameter) else 3.0)
        found = found * (17.0 if isinstance(self.weight, Parameter) else 19.0)
        found = found * (5.0 if isinstance(x_i, (int, torch.Tensor)) else 7.0)
        return x_i + found * self.weight * (
            11.0 if torch.is_tensor(found) and not isinstance(found, (list, int)) else 13.0
        )


def given(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    example = GRAPHS['random']()
    return {'edge_index': example.edge_index, 'x': torch.randn(example.num_targets, WIDTH, dtype=dtype)}


def assert_same(conv: Own) -> str | None:
    """Outputs and gradients of the compiled layer are the layer's own; why PyG's operators ran, if they did."""
    fused, found, arguments = pygfuse.compile(copy.deepcopy(conv)), [], given()
    for layer in (conv, fused):
        x = arguments['x'].clone().requires_grad_()
        out = layer(edge_index=arguments['edge_index'], x=x)
        # a reentrant checkpoint has no part in `torch.autograd.grad`
        (out.float() * torch.linspace(-1, 1, WIDTH)).sum().backward()
        found.append([out, x.grad, *(parameter.grad for parameter in layer.parameters())])
    assert found[1][0].dtype == found[0][0].dtype
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    return fused.note.reason


@pytest.mark.parametrize('reentrant', [False, True])
@pytest.mark.parametrize('kind', [Checkpointed, ByTheModule])
def test_a_checkpoint_is_run(kind, reentrant):
    torch.manual_seed(0)
    assert assert_same(kind(reentrant)) is None


def test_a_cast_of_the_message_s_own_is_refused():
    torch.manual_seed(0)
    assert assert_same(Cast()) == 'it computes under autocast of its own'


def test_a_cast_around_a_capture_is_not_the_message_s_own():
    x = Given('source', torch.randn(3, WIDTH)), Given('target', torch.randn(3, WIDTH))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        found = capture(Network(), dict(zip(('x_j', 'x_i'), x, strict=True)))
    assert found.output.dtype is torch.float32


def test_values_are_tensors():
    torch.manual_seed(0)
    assert assert_same(Asking()) is None
