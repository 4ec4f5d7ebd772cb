"""Gaussians of distances in one pass: PyG's numbers, and derivatives of any order."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.models.schnet import GaussianSmearing as Plain
from torch_geometric.nn.models.schnet import SchNet

import pygfuse
from pygfuse.conv._smearing import GaussianSmearing


def _both(num_gaussians: int, dtype: torch.dtype) -> tuple[Plain, GaussianSmearing]:
    plain = Plain(0.0, 4.0, num_gaussians).to(dtype)
    fused = copy.deepcopy(plain)
    fused.__class__ = GaussianSmearing
    return plain, fused


# fewer than a register holds, several registers, several blocks of them
@pytest.mark.parametrize('num_gaussians', [2, 50, 70])
@pytest.mark.parametrize('count', [0, 1, 700])
def test_values(num_gaussians, count):
    plain, fused = _both(num_gaussians, torch.float32)
    distance = 5 * torch.rand(count, generator=torch.Generator().manual_seed(0))
    right = copy.deepcopy(plain).double()
    right.coeff = plain.coeff
    expected = right(distance.double())
    error, of_plain = (_error(smearing(distance), expected) for smearing in (fused, plain))
    assert error <= max(2 * of_plain, 1e-7)


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max()) if found.numel() else 0.0


@pytest.mark.parametrize('shape', [(6,), (6, 1), (2, 3)], ids=str)
def test_derivatives(shape):
    _, fused = _both(18, torch.float64)
    distance = (4 * torch.rand(shape, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(fused, distance, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(fused, distance)


def test_third_derivative():
    plain, fused = _both(18, torch.float64)
    distance = (4 * torch.rand(20, dtype=torch.float64)).requires_grad_()
    weights = torch.randn(20, 18, dtype=torch.float64, requires_grad=True)

    def derivatives(smearing: torch.nn.Module) -> list[Tensor]:
        (first,) = torch.autograd.grad((smearing(distance) * weights).sin().sum(), distance, create_graph=True)
        (second,) = torch.autograd.grad(first.sin().sum(), distance, create_graph=True)
        return [first, second, *torch.autograd.grad(second.sin().sum(), (distance, weights))]

    for found, right in zip(derivatives(fused), derivatives(plain), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


def test_backward_keeps_no_rows():
    _, fused = _both(50, torch.float32)
    distance = torch.rand(100, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        fused(distance)
    assert max(kept) == 100


def test_fuse_and_unfuse():
    model = SchNet(8, 8, 1, 10)
    first = model.distance_expansion
    assert type(pygfuse.fuse(model).distance_expansion) is GaussianSmearing
    assert model.distance_expansion is first
    assert type(pickle.loads(pickle.dumps(model)).distance_expansion) is GaussianSmearing
    assert repr(model.distance_expansion) == 'GaussianSmearing()'
    assert type(pygfuse.unfuse(model).distance_expansion) is Plain


@pytest.mark.parametrize(
    ('chosen', 'expected'),
    [
        ({'exclude': 'distance_expansion'}, Plain),
        ({'exclude': Plain}, Plain),
        ({'include': 'interactions.*'}, Plain),
        ({'include': Plain}, GaussianSmearing),
        ({'exclude': 'interactions.*'}, GaussianSmearing),
    ],
)
def test_it_is_chosen_as_layers_are(chosen, expected):
    assert type(pygfuse.fuse(SchNet(8, 8, 1, 10), **chosen).distance_expansion) is expected


def test_strict_leaves_it_as_it_was():
    model = torch.nn.ModuleList([Plain(), torch_geometric.nn.PointTransformerConv(4, 4, pos_nn=torch.nn.Identity())])
    model[1].aggr = 'median'
    with pytest.raises(ValueError, match='strict'):
        pygfuse.fuse(model, compile=False, strict=True)
    assert type(model[0]) is Plain


def test_subclasses_stay():
    class Own(Plain):
        pass

    model = torch.nn.ModuleList([Own()])
    assert type(pygfuse.fuse(model)[0]) is Own


@pytest.mark.parametrize('how', ['dtype', 'trained', 'traced'])
def test_as_pyg_where_there_is_no_kernel(how):
    plain, fused = _both(5, torch.float32)
    distance = torch.rand(4, dtype=torch.float64 if how == 'dtype' else torch.float32)
    if how == 'trained':
        plain.offset.requires_grad_()
        fused.offset.requires_grad_()
        (found, right) = (torch.autograd.grad(one(distance).sum(), one.offset)[0] for one in (fused, plain))
    elif how == 'traced':
        found, right = torch.func.vmap(fused)(distance.unsqueeze(1)), torch.func.vmap(plain)(distance.unsqueeze(1))
    else:
        found, right = fused(distance), plain(distance)
    assert found.dtype == right.dtype
    torch.testing.assert_close(found, right)


def test_script():
    _, fused = _both(5, torch.float32)
    distance = torch.rand(4)
    torch.testing.assert_close(torch.jit.script(copy.deepcopy(fused))(distance), fused(distance))
