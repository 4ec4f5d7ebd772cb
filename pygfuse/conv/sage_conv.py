"""The fused GraphSAGE operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor

from pygfuse.conv._layer import FusedConv, check_features, nodes_of
from pygfuse.conv._lstm import tree_of, why_not_lstm, why_not_shared
from pygfuse.conv._neighbours import NeighbourConv
from pygfuse.hag.prefix_tree import lstm_aggregate
from pygfuse.ops import autocast
from pygfuse.ops.linear import apply_linear


class SAGEConv(NeighbourConv, torch_geometric.nn.SAGEConv):
    r"""`torch_geometric.nn.SAGEConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \cdot \mathrm{aggr}_{j \in \mathcal{N}(i)}
        \mathbf{x}_j

    The aggregation (mean, sum, max or min) is one walk over the edges. With ``aggr='lstm'``, targets whose neighbour
    lists begin alike share the steps of the LSTM, where that saves steps. Other aggregations run PyG's own path.

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

    def why_not(self) -> str | None:
        if self.aggr == 'lstm':
            return FusedConv.why_not(self) or why_not_lstm(self.aggr_module)
        return super().why_not()

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``SAGEConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(edge_index, pair, size)):
            return super().forward(x, edge_index, size)
        check_features(self, pair, shared=isinstance(x, Tensor))
        if self.project and hasattr(self, 'lin'):
            pair = (self.lin(pair[0]).relu(), pair[1])
        if self.aggr == 'lstm':
            tree = tree_of(nodes_of(self, pair, edge_index, size)[1])
            out = self.lin_l(lstm_aggregate(tree, pair[0], self.aggr_module.lstm))
        else:
            out = apply_linear(self.lin_l, self.neighbours(pair, edge_index, size=size, ignores_values=True))
        if self.root_weight and pair[1] is not None:
            out = out + apply_linear(self.lin_r, pair[1])
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _why_not_call(self, adjacency: Any, pair: tuple[Tensor, Tensor | None], size: Any) -> str | None:
        reason = self.why_not_neighbours(adjacency, pair, size=size)
        if reason is None and self.aggr == 'lstm' and autocast.is_on(pair[0].device):
            return 'autocast is on'
        if reason is None and self.aggr == 'lstm':
            return why_not_shared(adjacency, nodes_of(self, pair, adjacency, size)[1])
        return reason
