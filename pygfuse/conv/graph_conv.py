"""The fused operator of higher-order Weisfeiler-Leman networks."""

from __future__ import annotations

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._layer.map_first import MappedSums
from pygfuse.conv._layer.spec import EdgeWeight, Spec
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS


class GraphConv(MappedSums, torch_geometric.nn.GraphConv):
    r"""`torch_geometric.nn.GraphConv`, fused: the same parameters, options and numbers.

    From the `"Weisfeiler and Leman Go Neural: Higher-order Graph Neural Networks" <https://arxiv.org/abs/1810.02244>`_
    paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \sum_{j \in \mathcal{N}(i)} e_{ji} \mathbf{x}_j

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, aggr, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = GraphConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_weight': OptTensor}
    sums_mapped_by, root_mapped_by = 'lin_rel', 'lin_root'
    spec = Spec(
        NEIGHBOURS, edge=EdgeWeight(WEIGHTED_NEIGHBOURS, wide=True), in_channels='in_channels', static=True,
        matrix=True, hag=True, autocast=True, sparse=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, edge_weight: OptTensor = None, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GraphConv.forward``."""
        return self.fused(x, edge_index, edge_weight=edge_weight, size=size)
