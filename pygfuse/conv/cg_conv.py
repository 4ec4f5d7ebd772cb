"""The fused crystal graph convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, PairTensor

from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    checked_edge_attr,
    nodes_of,
    why_not_map,
    why_not_reduce,
    why_not_reversed,
    why_not_rows,
)
from pygfuse.ops.aggregate import aggregate
from pygfuse.program.library.crystal import CRYSTAL
from pygfuse.program.products import Product


class CGConv(FusedConv, torch_geometric.nn.CGConv):
    r"""`torch_geometric.nn.CGConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{x}_i + \sum_j \sigma (\mathbf{W}_f \mathbf{z}_{ij} + \mathbf{b}_f) \odot
        \mathrm{softplus} (\mathbf{W}_s \mathbf{z}_{ij} + \mathbf{b}_s), \quad
        \mathbf{z}_{ij} = [\mathbf{x}_i, \mathbf{x}_j, \mathbf{e}_{ij}]

    Each linear map is taken apart: the ends' parts once a node, the edge's part edge by edge in registers.

    Args:
        channels, dim, aggr, batch_norm, bias: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = CGConv(16)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': PairTensor, 'edge_attr': OptTensor}
    rests_on_reorganisation: ClassVar = True

    def why_not(self) -> str | None:
        return super().why_not() or why_not_reduce(self.aggr) or why_not_map(self, 'lin_f', 'lin_s')

    def forward(self, x: Tensor | tuple[Tensor, Tensor], edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``CGConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(edge_index, pair, edge_attr)):
            return super().forward(x, edge_index, edge_attr)
        self._check_widths(pair)
        edges, graph = nodes_of(self, pair, edge_index)
        if self.dim:
            edge_attr = checked_edge_attr(edge_index, edge_attr, self.dim, edges, graph)
            if edge_attr is None:
                raise ValueError("Expected 'edge_attr' to be given, as the layer has a 'dim' (got None)")
        operands: dict[str, Any] = {}
        width_dst, width_src = pair[1].shape[1], pair[0].shape[1]
        for name, linear in (('f', self.lin_f), ('s', self.lin_s)):
            of_dst, of_src, of_edge = linear.weight.split([width_dst, width_src, self.dim], dim=1)
            operands[name] = pair[0] @ of_src.t()
            operands[f'{name}_dst'] = F.linear(pair[1], of_dst, linear.bias)
            if self.dim:
                operands[f'{name}_edge'] = Product(edge_attr, of_edge.t())
        with self.noted():
            out = aggregate(CRYSTAL, edges, operands, 1, width_dst, REDUCTIONS[self.aggr]).flatten(1)
        return (out if self.bn is None else self.bn(out)) + pair[1]

    def _check_widths(self, pair: tuple[Tensor, Tensor]) -> None:
        widths = (self.channels, self.channels) if isinstance(self.channels, int) else self.channels
        for i, (features, width) in enumerate(zip(pair, widths, strict=True)):
            if features.shape[1] != width:
                raise ValueError(
                    f"Expected 'x[{i}]' to have {width} features, as channels says (got shape {list(features.shape)})"
                )

    def _why_not_call(self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_attr: Tensor | None) -> str | None:
        reason = self.why_not_with(adjacency, pair, self.lin_f.weight, edge_attr=edge_attr) or why_not_rows(pair[0])
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        if reason is None and edge_attr is not None and not self.dim:
            return 'edge_attr without dim'
        return reason or why_not_reversed(self.flow, pair)
