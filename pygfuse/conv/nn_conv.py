"""The fused continuous kernel-based convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._edge_mlp.filters import FilterConv
from pygfuse.conv._edge_mlp.network import Linear, Stage, on_chunks
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.spec import SUMS, EdgeFeatures, Spec
from pygfuse.mapping.few_edges import fewest_of_matrices
from pygfuse.ops import Edges
from pygfuse.ops.degrees import mean_of
from pygfuse.ops.edge_mlp import Begin, Contract, edge_reduce


class NNConv(FilterConv, torch_geometric.nn.NNConv):
    r"""`torch_geometric.nn.NNConv`, fused: the same parameters, options and numbers.

    From the `"Neural Message Passing for Quantum Chemistry" <https://arxiv.org/abs/1704.01212>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{\Theta} \mathbf{x}_i + \sum_{j \in \mathcal{N}(i)} \mathbf{x}_j \cdot
        h_{\mathbf{\Theta}}(\mathbf{e}_{i,j})

    The matrix that the last linear map of :math:`h_{\mathbf{\Theta}}` makes for each edge is never made: products of
    :math:`\mathbf{x}_j` and what that map takes are added up for each target, and mapped once a target. What comes
    before runs on chunks of edges.

    Fused are sums and means, and networks of linear maps and activations whose last stage is a linear map; another
    ``nn`` runs PyG's path.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, nn, aggr, root_weight, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> nn = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 16 * 4))
        >>> conv = NNConv(16, 4, nn)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 5)).shape
        torch.Size([3, 4])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_attr': OptTensor}
    spec = Spec(None, SUMS, edge=EdgeFeatures('nn', required=True), in_channels='in_channels', saves_rows=True)

    def forward(self, x: Any, edge_index: Any, edge_attr: OptTensor = None, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``NNConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr, size=size)

    def prepare(self) -> list[Stage] | str:
        stages = super().prepare()
        if isinstance(stages, str):
            return stages
        return stages if isinstance(stages[-1], Linear) else 'nn does not end with a Linear'

    def are_so_few(self, adjacency: Any) -> bool:
        numbers = self.in_channels_l * self.out_channels
        return fallback.are_fewer(adjacency, fewest_of_matrices(numbers, torch.is_grad_enabled()))

    def check(self, inputs: Inputs, prepared: list[Stage]) -> None:
        super().check(inputs, prepared)
        width, expected = prepared[-1].module.weight.shape[0], self.in_channels_l * self.out_channels
        if width != expected:
            raise ValueError(f"Expected 'nn' to give {expected} values, a matrix for each edge (got {width})")

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: list[Stage]) -> tuple[Tensor, None]:
        begin = Begin(features=self.edge_input(inputs, edges).values)
        last = prepared[-1].module
        contract = Contract.by(inputs.x[0], last.weight, last.bias)
        stages = [*on_chunks(begin, prepared[:-1], edges), contract]
        out = edge_reduce(stages, edges, 'sum')
        if self.reduction == 'mean':
            out = mean_of(out, edges)
        return out, None

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        if x[1] is not None and self.root_weight:
            out = out + self.lin(x[1])
        return self.with_bias(out)
