"""The Gaussian smearing of a model of PyG's, in one pass."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.models import schnet

from pygfuse._lib.backends import DTYPES, smearing_of
from pygfuse.ops.points.smearing import Gaussians, smeared
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import is_watched


class GaussianSmearing(schnet.GaussianSmearing):
    """`torch_geometric.nn.models.schnet.GaussianSmearing`: the same numbers, differentiable as often as those.

    Neither it nor its gradients keep a tensor of distances x Gaussians beside the gradient that is given. Where there
    is no kernel for its arguments it computes as PyG does.

    Example:
        >>> smearing = GaussianSmearing(0.0, 2.0, 3)
        >>> smearing(torch.tensor([1.0]))
        tensor([[0.6065, 1.0000, 0.6065]])
    """

    plain: ClassVar[type[torch.nn.Module]] = schnet.GaussianSmearing

    def forward(self, dist: Tensor) -> Tensor:
        """Gaussians of distances, ``[distances, Gaussians]``."""
        if not self._has_kernel(dist):
            return super().forward(dist)
        return smeared(dist.flatten(), Gaussians(self.offset, self.coeff))

    def _has_kernel(self, dist: Tensor) -> bool:
        tensors = dist, self.offset
        if is_watched(tensors) or any(map(is_batched, tensors)) or smearing_of(dist.device) is None:
            return False
        is_known = dist.dtype == self.offset.dtype and dist.dtype in DTYPES[dist.device.type]
        return is_known and dist.device == self.offset.device and not self.offset.requires_grad

    def __prepare_scriptable__(self) -> torch.nn.Module:
        self.__class__ = self.plain
        return self
