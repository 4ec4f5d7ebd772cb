"""The fused frequency adaptive operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._attention import attention_result
from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    checked_edge_weight,
    is_edge_index,
    nodes_of,
    why_not_reduce,
    why_not_rows,
)
from pygfuse.conv._norm_cache import cached_factors
from pygfuse.ops.aggregate import aggregate, new_seed
from pygfuse.program.library.fa import FA, NORMALISED_FA


class FAConv(FusedConv, torch_geometric.nn.FAConv):
    r"""`torch_geometric.nn.FAConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = \epsilon \mathbf{x}^{(0)}_i + \sum_j \frac{\alpha_{ij}}{\sqrt{d_i d_j}} \mathbf{x}_j,
        \quad \alpha_{ij} = \tanh(\mathbf{a}^{\top} [\mathbf{x}_i, \mathbf{x}_j])

    Args:
        channels, eps, dropout, cached, add_self_loops, normalize: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> x = torch.randn(3, 16)
        >>> FAConv(16)(x, x, torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'alpha': OptPairTensor, 'edge_weight': OptTensor}

    def why_not(self) -> str | None:
        reason = super().why_not() or why_not_reduce(self.aggr, ('sum', 'mean'))
        return reason or ('it caches the first adjacency' if self.cached else None)

    def forward(
        self,
        x: Tensor,
        x_0: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Runs the layer; arguments and results are those of PyG's ``FAConv.forward``."""
        if not self.runs_fused(self._why_not_call(x, x_0, edge_index, edge_weight, return_attention_weights)):
            return super().forward(x, x_0, edge_index, edge_weight, return_attention_weights)
        if x.shape[1] != self.channels:
            raise ValueError(
                f"Expected 'x' to have {self.channels} features, as channels says (got shape {list(x.shape)})"
            )
        edges, graph = nodes_of(self, (x, x), edge_index, None, self.normalize and self.add_self_loops)
        operands = {'x': x, 'alpha_src': self.att_l(x), 'alpha_dst': self.att_r(x)}
        if self.normalize:
            program, factors = NORMALISED_FA, cached_factors(edges, None, x)
            operands |= {'norm_src': factors, 'norm_dst': factors}
        else:
            program = FA
            operands['edge_weight'] = checked_edge_weight(edge_weight, edges, graph)
        dropout = self.dropout if self.training else 0.0
        seed = new_seed(x) if dropout > 0.0 else None
        with self.noted():
            out = aggregate(program, edges, operands, 1, x.shape[1], REDUCTIONS[self.aggr], dropout, seed).flatten(1)
        out = out + self.eps * x_0 if self.eps != 0.0 else out
        if return_attention_weights is None:
            return out
        pair = graph.coo().long()
        of_ends = operands['alpha_src'][pair[1 - graph.target_row]] + operands['alpha_dst'][pair[graph.target_row]]
        return attention_result(out, edge_index, graph, of_ends.tanh().squeeze(-1))

    def _why_not_call(
        self, x: Tensor, x_0: Tensor, adjacency: Any, edge_weight: Tensor | None, weights: bool | None
    ) -> str | None:
        reason = self.why_not_with(
            adjacency, (x, None), self.att_l.weight, x_0=x_0, edge_weight=edge_weight
        ) or why_not_rows(x)
        if reason is None and weights is not None and torch.compiler.is_compiling():
            return 'return_attention_weights while torch compiles'
        if reason is None and not is_edge_index(adjacency):
            return 'a sparse adjacency brings its own weights'
        if reason is None and (edge_weight is None) != self.normalize:
            return 'edge_weight goes with normalize=False and only with it'
        return reason
