"""The fused attention operator with cosine scores."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor

from pygfuse.conv._layer import REDUCTIONS, FusedConv, nodes_of, why_not_reduce, why_not_rows
from pygfuse.ops.aggregate import aggregate
from pygfuse.program.library.agnn import AGNN


class AGNNConv(FusedConv, torch_geometric.nn.AGNNConv):
    r"""`torch_geometric.nn.AGNNConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha_{ij} \mathbf{x}_j, \quad
        \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \beta \cos(\mathbf{x}_i, \mathbf{x}_j)

    Args:
        requires_grad, add_self_loops: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> AGNNConv()(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'x_norm': Tensor}

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr, ('sum', 'mean'))

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``AGNNConv.forward``."""
        if not self.runs_fused(self.why_not_with(edge_index, (x, None), self.beta) or why_not_rows(x)):
            return super().forward(x, edge_index)
        edges, _ = nodes_of(self, (x, x), edge_index, None, self.add_self_loops)
        x_norm = F.normalize(x, p=2.0, dim=-1)
        operands = {'x': x, 'x_norm': x_norm, 'x_norm_dst': self.beta * x_norm}
        with self.noted():
            return aggregate(AGNN, edges, operands, 1, x.shape[1], REDUCTIONS[self.aggr]).flatten(1)
