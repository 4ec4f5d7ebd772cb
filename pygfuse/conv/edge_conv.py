"""The fused edge convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import PairTensor

from pygfuse.aggregate import aggregate
from pygfuse.conv.fused import (
    REDUCTIONS,
    FusedConv,
    nodes_of,
    same_nodes_if_reversed,
    why_not_map,
    why_not_reduce,
    why_not_rows,
)
from pygfuse.programs.edge_conv import EDGE_CONV


class EdgeConv(FusedConv, torch_geometric.nn.EdgeConv):
    r"""`torch_geometric.nn.EdgeConv`, fused where ``nn`` is one linear map.

    .. math::
        \mathbf{x}^{\prime}_i = \underset{j \in \mathcal{N}(i)}{\mathrm{aggr}} \; \mathbf{W} [\mathbf{x}_i,
        \mathbf{x}_j - \mathbf{x}_i] + \mathbf{b} = \underset{j \in \mathcal{N}(i)}{\mathrm{aggr}} \;
        (\mathbf{W}_1 - \mathbf{W}_2) \mathbf{x}_i + \mathbf{b} + \mathbf{W}_2 \mathbf{x}_j

    Both products are taken once a node (operator reorganisation, "Understanding GNN Computational Graph", section 4).

    Args:
        nn, aggr: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> conv = EdgeConv(torch.nn.Linear(32, 8))
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': PairTensor}
    rests_on_reorganisation: ClassVar = True

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr) or why_not_map(self, 'nn')

    def forward(self, x: Tensor | tuple[Tensor, Tensor], edge_index: Any) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``EdgeConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.note(self._why_not_call(edge_index, pair)):
            return super().forward(x, edge_index)
        width = pair[0].shape[1]
        if pair[1].shape[1] != width or self.nn.weight.shape[1] != 2 * width:
            raise ValueError(
                f"Expected 'x' to have {self.nn.weight.shape[1] // 2} features, half of what nn takes "
                f'(got shapes {list(pair[0].shape)} and {list(pair[1].shape)})'
            )
        of_target, of_difference = self.nn.weight[:, :width], self.nn.weight[:, width:]
        edges, _ = nodes_of(self, pair, edge_index)
        operands = {
            'x': pair[0] @ of_difference.t(),
            'x_dst': torch.nn.functional.linear(pair[1], of_target - of_difference, self.nn.bias),
        }
        channels = operands['x'].shape[1]
        return aggregate(EDGE_CONV, edges, operands, 1, channels, REDUCTIONS[self.aggr]).flatten(1)

    def _why_not_call(self, adjacency: Any, pair: tuple[Tensor, Tensor | None]) -> str | None:
        reason = self.why_not() or self.why_not_with(adjacency, pair, self.nn.weight) or why_not_rows(pair[0])
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        if reason is None and not same_nodes_if_reversed(self.flow, pair, None):
            return 'flow target_to_source between different sets of nodes'
        return reason
