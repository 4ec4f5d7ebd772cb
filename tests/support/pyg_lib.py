"""What PyG's own classes need of packages that are not installed, in a few lines of torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
import torch_geometric
from torch import Tensor
from torch.torch_version import TorchVersion

from pygfuse.ops.points.knn import knn


@contextlib.contextmanager
def pyg_lib() -> Iterator[None]:
    """A ``with`` block in which PyG's classes find pyg-lib, or torch_cluster, which PyG 2.7 takes for neighbours."""
    of_splines = 'torch_geometric.nn.conv.spline_conv'
    patches = [mock.patch(f'{of_splines}.{one.__name__}', one) for one in (spline_basis, spline_weighting)]
    if TorchVersion(torch_geometric.__version__) < '2.8':
        patches += [mock.patch(f'torch_geometric.nn.conv.{name}.knn', knn) for name in ('edge_conv', 'gravnet_conv')]
    else:
        patches.append(mock.patch('torch_geometric.typing.WITH_KNN', True))
        patches.append(mock.patch.object(torch.ops.pyg, 'knn', _knn, create=True))
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


@pytest.fixture
def with_pyg_lib():
    with pyg_lib():
        yield


def _knn(x, y, ptr_x, ptr_y, k, cosine, num_workers):
    batches = [
        None if ptr is None else torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff()) for ptr in (ptr_x, ptr_y)
    ]
    return knn(x, y, k, *batches)


def spline_basis(pseudo: Tensor, kernel_size: Tensor, is_open_spline: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """The coefficients of all weights of a kernel, by the definition of B-splines, most of them zero."""
    found = pseudo.new_ones(len(pseudo), 1)
    for place, size, is_open in zip(pseudo.unbind(1), kernel_size.tolist(), is_open_spline.tolist(), strict=True):
        knots = place.unsqueeze(1) * (size - degree * is_open) - torch.arange(size) + degree
        # behind its end a closed one begins again
        own = _cardinal(knots, degree) + (0.0 if is_open else _cardinal(knots - size, degree))
        found = (own.unsqueeze(2) * found.unsqueeze(1)).flatten(1)
    return found, torch.arange(found.shape[1]).expand(len(pseudo), -1)


def _cardinal(x: Tensor, degree: int) -> Tensor:
    """The B-spline of this degree with knots 0, 1, ..., by its recursion."""
    if degree == 0:
        return ((x >= 0) & (x < 1)).to(x.dtype)
    before, behind = _cardinal(x, degree - 1), _cardinal(x - 1, degree - 1)
    return (x * before + (degree + 1 - x) * behind) / degree


def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, weight_index: Tensor) -> Tensor:
    """Rows times the sums of all weights by their coefficients."""
    return torch.einsum('ei,ek,kio->eo', x, basis, weight)
