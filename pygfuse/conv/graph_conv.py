"""The fused operator of higher-order Weisfeiler-Leman networks."""

from __future__ import annotations

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv.fused import check_features, pair_of
from pygfuse.conv.neighbours import NeighbourConv
from pygfuse.linear import apply_linear


class GraphConv(NeighbourConv, torch_geometric.nn.GraphConv):
    r"""`torch_geometric.nn.GraphConv`, fused: the same parameters, options and numbers.

    From the `"Weisfeiler and Leman Go Neural: Higher-order Graph Neural Networks" <https://arxiv.org/abs/1810.02244>`_
    paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \sum_{j \in \mathcal{N}(i)} e_{ji} \mathbf{x}_j

    Args:
        in_channels, out_channels, aggr, bias: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = GraphConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_weight': OptTensor}

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_weight: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GraphConv.forward``."""
        pair = pair_of(x)
        if not self.note(self.why_not_neighbours(edge_index, pair, edge_weight, size)):
            if isinstance(edge_index, EdgeIndex):
                # PyG's product with it is an autograd.Function, which wants values
                x = tuple(None if part is None else part[:] for part in pair)
            return super().forward(x, edge_index, edge_weight, size)
        check_features(self, pair, shared=isinstance(x, Tensor))
        out = apply_linear(self.lin_rel, self.neighbours(pair, edge_index, edge_weight, size))
        return out if pair[1] is None else out + apply_linear(self.lin_root, pair[1])
