"""GravNet without pyg-lib: PyG's numbers and gradients, along the neighbours that PyG is given."""

from __future__ import annotations

import copy
import inspect
import re

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import Module

import pygfuse
from pygfuse.conv import GravNetConv
from pygfuse.memory import saved_bytes
from tests.support.copies import copies
from tests.support.pyg_lib import with_pyg_lib  # noqa: F401 (a fixture)

FEATURES, CHANNELS, SPACE, WIDTH, K = 5, 6, 3, 7, 4
BATCH = torch.arange(4).repeat_interleave(torch.tensor([20, 3, 30, 7]))

pytestmark = pytest.mark.usefixtures('with_pyg_lib')


def points(count: int = len(BATCH), seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, FEATURES, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def pair(dtype: torch.dtype = torch.float64, k: int = K) -> tuple[Module, Module]:
    made = []
    for kind in (pyg.GravNetConv, GravNetConv):
        torch.manual_seed(0)
        made.append(kind(FEATURES, CHANNELS, SPACE, WIDTH, k).to(dtype))
    return tuple(made)


def gradients(conv: Module, inputs: list[Tensor], out: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return list(torch.autograd.grad((out * weights).sum(), [*inputs, *conv.parameters()]))


def check(x: Tensor | tuple[Tensor, Tensor], batch: Tensor | tuple[Tensor, Tensor] | None, k: int = K) -> None:
    plain, fused = pair(k=k)
    leaves = [part.requires_grad_() for part in (x if isinstance(x, tuple) else (x,))]
    expected, out = plain(x, batch), fused(x, batch)
    assert fused.note.reason is None
    torch.testing.assert_close(out, expected)
    for got, wanted in zip(gradients(fused, leaves, out), gradients(plain, leaves, expected), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize('batch', [None, BATCH], ids=['one cloud', 'clouds'])
@pytest.mark.parametrize('k', [1, K, 50])
def test_outputs_and_gradients_are_those_of_pyg(k, batch):
    check(points(), batch, k)


@pytest.mark.parametrize('batched', [True, False])
def test_points_and_queries(batched):
    check((points(), points(12, seed=1)), (BATCH, torch.arange(4).repeat_interleave(3)) if batched else None)


def test_in_float32():
    (plain, fused), (reference, _) = pair(torch.float32), pair()
    x = points(400, dtype=torch.float32)
    expected = reference(x.double())
    error = (plain(x) - expected).abs().max()
    assert (fused(x) - expected).abs().max() <= 2 * error


def test_clouds_of_few_points_and_none():
    plain, fused = pair()
    for count in (0, 1, 2):
        torch.testing.assert_close(fused(points(count)), plain(points(count)))
    assert fused(points(0), BATCH[:0]).shape == (0, CHANNELS)


def test_gradients_of_gradients():
    _, fused = pair(k=2)
    x = points(6).requires_grad_()
    assert torch.autograd.gradcheck(fused, (x,))
    assert torch.autograd.gradgradcheck(fused, (x,))


def test_nothing_of_edges_is_kept():
    (plain, fused), x = pair(), points(400)
    many, few = (pair(k=k)[1] for k in (40, 4))
    of_pyg, ours = saved_bytes(lambda: plain(x)), saved_bytes(lambda: fused(x))
    assert ours < of_pyg / 2
    # but an edge_index
    assert saved_bytes(lambda: many(x)) - saved_bytes(lambda: few(x)) <= 400 * 36 * 2 * 8


def test_twenty_steps_of_training():
    losses = []
    for conv in pair(torch.float32):
        torch.manual_seed(1)
        head, x, y = torch.nn.Linear(CHANNELS, 2), points(dtype=torch.float32), torch.arange(len(BATCH)) % 2
        optimizer = torch.optim.Adam([*conv.parameters(), *head.parameters()], lr=0.02)
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(head(conv(x, BATCH).relu()), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0] < 0.6


def test_constructor_parameters_and_printed_form():
    plain, fused = pair()
    # an option that has no effect is None in PyG from 2.8 on
    names = [[*inspect.signature(kind.__init__).parameters] for kind in (pyg.GravNetConv, GravNetConv)]
    assert names[0] == names[1]
    assert repr(fused) == repr(plain)
    assert fused.aggr == plain.aggr
    assert (fused.k, fused.flow, fused.in_channels) == (plain.k, plain.flow, plain.in_channels)
    torch.testing.assert_close(fused.state_dict(), plain.state_dict(), rtol=0, atol=0)
    torch.manual_seed(1)
    plain.reset_parameters()
    torch.manual_seed(1)
    fused.reset_parameters()
    torch.testing.assert_close(fused.state_dict(), plain.state_dict(), rtol=0, atol=0)
    with pytest.warns(UserWarning, match="'num_workers' of GravNetConv has no effect"):
        GravNetConv(FEATURES, CHANNELS, SPACE, WIDTH, K, num_workers=2)


def test_a_width_that_the_first_input_says():
    conv = GravNetConv(-1, CHANNELS, SPACE, WIDTH, K).double()
    assert conv(points(), BATCH).shape == (len(BATCH), CHANNELS)
    assert conv.lin_s.weight.shape == (SPACE, FEATURES)


def test_layers_of_pyg_are_swapped():
    model = torch.nn.ModuleList([pair()[0]])
    expected = model[0](points(), BATCH)
    assert [row.why_not for row in pygfuse.report(model)] == ['call pygfuse.fuse(model)']
    pygfuse.fuse(model)
    assert type(model[0]) is GravNetConv
    torch.testing.assert_close(model[0](points(), BATCH), expected)
    assert [row.why_not for row in pygfuse.report(model)] == [None]
    pygfuse.unfuse(model)
    assert type(model[0]) is pyg.GravNetConv
    torch.testing.assert_close(model[0](points(), BATCH), expected)


class Louder(pyg.GravNetConv):
    """A message of somebody's own."""

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return 2.0 * super().message(x_j, edge_weight)


def test_a_class_of_ones_own_keeps_its_message():
    torch.manual_seed(0)
    layer = Louder(FEATURES, CHANNELS, SPACE, WIDTH, K).double()
    expected = layer(points(), BATCH)
    fused = pygfuse.fuse(layer)
    assert type(fused) is not GravNetConv
    torch.testing.assert_close(fused(points(), BATCH), expected)


def test_copies_and_files(tmp_path):
    _, conv = pair()
    expected = conv(points(), BATCH)
    for twin in copies(conv, tmp_path):
        assert type(twin) is GravNetConv
        assert torch.equal(twin(points(), BATCH), expected)


def test_within_torch_compile():
    (plain, fused), x = pair(torch.float32), points(dtype=torch.float32).requires_grad_()
    expected, out = plain(x, BATCH), torch.compile(fused)(x, BATCH)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    for got, wanted in zip(gradients(fused, [x], out), gradients(plain, [x], expected), strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


WRONG = {
    'unsorted': (lambda conv, x: conv(x, BATCH.flip(0)), "Expected 'batch' to ascend from 0"),
    'short': (lambda conv, x: conv(x, BATCH[:5]), "Expected 'batch' to hold one number for each of 60 points"),
    'of queries': (lambda conv, x: conv((x, x), (BATCH, BATCH[:5])), "Expected 'batch[1]' to hold one number for each"),
    'queries': (lambda conv, x: conv((x, x[:, :2])), "Expected 'x[1]' to have 5 features, as in_channels says (got"),
    'one dimension': (lambda conv, x: conv(x[:, 0]), "Expected 'x' to be two-dimensional, [nodes, features] (got"),
    'no queries': (lambda conv, x: conv((x, None)), "Expected 'x' to hold points and queries (got None in x[1])"),
    'width': (lambda conv, x: conv(x[:, :2]), "Expected 'x' to have 5 features, as in_channels says (got"),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_are_named(name):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        call(pair()[1], points())


def test_k_must_be_positive():
    with pytest.raises(ValueError, match=re.escape("Expected 'k' to be a positive integer (got 0)")):
        GravNetConv(FEATURES, CHANNELS, SPACE, WIDTH, 0)


def test_within_transforms_of_torch_func():
    _, conv = pair()
    parameters, x = dict(conv.named_parameters()), points(20)
    expected = torch.autograd.grad(conv(x).square().sum(), list(parameters.values()))
    found = torch.func.grad(lambda those: torch.func.functional_call(conv, those, (x,)).square().sum())(parameters)
    torch.testing.assert_close(list(found.values()), list(expected))


def test_few_edges_run_their_own_code(monkeypatch):
    plain, conv = pair()
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_OF_OPERATORS', 10_000)
    expected = plain(points(), BATCH)
    for layer in (
        conv,
        pygfuse.fuse(copy.deepcopy(plain)),
        pygfuse.compile(copy.deepcopy(plain)),
        copy.deepcopy(pygfuse.fuse(copy.deepcopy(plain))),
    ):
        torch.testing.assert_close(layer(points(), BATCH), expected)
        assert layer.note.reason == 'so few edges that a row for each takes less'
    torch.testing.assert_close(pygfuse.unfuse(pygfuse.fuse(plain))(points(), BATCH), expected)
