"""The fused GraphSAGE operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor

from pygfuse.conv.fused import check_features
from pygfuse.conv.neighbours import NeighbourConv


class SAGEConv(NeighbourConv, torch_geometric.nn.SAGEConv):
    r"""`torch_geometric.nn.SAGEConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \cdot \mathrm{aggr}_{j \in \mathcal{N}(i)}
        \mathbf{x}_j

    The aggregation (mean, sum, max or min; others run PyG's own path) is one walk over the edges.

    Args:
        in_channels, out_channels, aggr, normalize, root_weight, project, bias: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = SAGEConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor}

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``SAGEConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.note(self.why_not_neighbours(edge_index, pair, size=size)):
            return super().forward(x, edge_index, size)
        check_features(self, pair, shared=isinstance(x, Tensor))
        if self.project and hasattr(self, 'lin'):
            pair = (self.lin(pair[0]).relu(), pair[1])
        out = self.lin_l(self.neighbours(pair, edge_index, size=size, ignores_values=True))
        if self.root_weight and pair[1] is not None:
            out = out + self.lin_r(pair[1])
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out
