"""The fused graph isomorphism operators."""

from __future__ import annotations

from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._layer import REDUCTIONS, checked_edge_attr, nodes_of, why_not_map
from pygfuse.conv._neighbours import NeighbourConv
from pygfuse.ops.aggregate import aggregate
from pygfuse.program.library.gine import GINE
from pygfuse.program.products import Product


class GINConv(NeighbourConv, torch_geometric.nn.GINConv):
    r"""`torch_geometric.nn.GINConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = h \left( (1 + \epsilon) \mathbf{x}_i + \sum_{j \in \mathcal{N}(i)} \mathbf{x}_j \right)

    Args:
        nn, eps, train_eps: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = GINConv(torch.nn.Linear(16, 8))
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
        """Runs the layer; arguments and results are those of PyG's ``GINConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self.why_not_neighbours(edge_index, pair, size=size)):
            return super().forward(x, edge_index, size)
        out = self.neighbours(pair, edge_index, size=size, ignores_values=True)
        return self.nn(out if pair[1] is None else out + (1 + self.eps) * pair[1])


class GINEConv(NeighbourConv, torch_geometric.nn.GINEConv):
    r"""`torch_geometric.nn.GINEConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = h \left( (1 + \epsilon) \mathbf{x}_i + \sum_{j \in \mathcal{N}(i)} \mathrm{ReLU}
        (\mathbf{x}_j + \mathbf{W} \mathbf{e}_{ji} + \mathbf{b}) \right)

    With ``edge_dim`` the edge's linear map is computed edge by edge in registers.

    Args:
        nn, eps, train_eps, edge_dim: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = GINEConv(torch.nn.Linear(16, 8), edge_dim=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 4)).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_attr': OptTensor}
    runs_under_autocast: ClassVar = False

    def why_not(self) -> str | None:
        return super().why_not() or why_not_map(self, 'lin')

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GINEConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(edge_index, pair, edge_attr, size)):
            return super().forward(x, edge_index, edge_attr, size)
        if self.lin is not None and pair[0].shape[1] != self.lin.out_channels:
            raise ValueError(
                f"Expected 'x' to have {self.lin.out_channels} features, as the linear map of edges gives (got shape "
                f'{list(pair[0].shape)})'
            )
        edges, graph = nodes_of(self, pair, edge_index, size)
        channels, source = pair[0].shape[1], pair[0]
        edge = checked_edge_attr(
            edge_index, edge_attr, channels if self.lin is None else self.lin.in_channels, edges, graph
        )
        if edge is None:
            raise ValueError("Expected 'edge_attr' to be given (got None)")
        if self.lin is not None:
            # the bias goes to the nodes
            edge, source = Product(edge, self.lin.weight.t()), source + self.lin.bias
        with self.noted():
            out = aggregate(GINE, edges, {'x': source, 'edge': edge}, 1, channels, REDUCTIONS[self.aggr]).flatten(1)
        return self.nn(out if pair[1] is None else out + (1 + self.eps) * pair[1])

    def _why_not_call(
        self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_attr: Tensor | None, size: Any
    ) -> str | None:
        reason = self.why_not_neighbours(adjacency, pair, size=size)
        return reason or self.why_not_with(adjacency, pair, edge_attr=edge_attr)
