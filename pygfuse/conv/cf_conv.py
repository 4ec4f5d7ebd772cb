"""The fused continuous-filter convolution of SchNet."""

from __future__ import annotations

from math import pi
from typing import Any, ClassVar

from torch import Tensor
from torch_geometric.nn.models import schnet

from pygfuse.conv._edge_mlp.filters import FilterConv
from pygfuse.conv._edge_mlp.network import Stage, on_chunks
from pygfuse.conv._layer.checks import Inputs, NodePair, checked_edge_weight
from pygfuse.conv._layer.spec import EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import Begin, Times, edge_reduce


class CFConv(FilterConv, schnet.CFConv):
    r"""`torch_geometric.nn.models.schnet.CFConv`, fused: the same parameters and numbers.

    From the `"SchNet: A Continuous-filter Convolutional Neural Network for Modeling Quantum Interactions"
    <https://arxiv.org/abs/1706.08566>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_2 \sum_{j \in \mathcal{N}(i)} \mathbf{W}_1 \mathbf{x}_j \odot
        h_{\mathbf{\Theta}}(\mathbf{e}_{i,j}) \cdot \tfrac{1}{2} \left( \cos(\pi d_{i,j} / c) + 1 \right)

    The filter :math:`h_{\mathbf{\Theta}}` runs on chunks of edges. Fused are networks of linear maps,
    activations and batch normalisations.

    Args:
        in_channels, out_channels, num_filters, nn, cutoff: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> nn = torch.nn.Sequential(torch.nn.Linear(50, 8), schnet.ShiftedSoftplus(), torch.nn.Linear(8, 8))
        >>> conv = CFConv(16, 16, 8, nn, cutoff=10.0)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]]), torch.rand(2), torch.randn(2, 50)).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'W': Tensor}
    spec = Spec(None, ('sum',), edge=EdgeFeatures('nn', required=True), bipartite=False)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor, edge_attr: Tensor) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``CFConv.forward``."""
        return self.fused(x, edge_index, edge_weight=edge_weight, edge_attr=edge_attr)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: list[Stage]) -> tuple[Tensor, None]:
        features = self.edge_input(inputs, edges).values
        distance = checked_edge_weight(inputs.others['edge_weight'], edges)
        if distance is None:
            raise ValueError("Expected 'edge_weight' to be given, the length of each edge (got None)")
        cutoff = 0.5 * ((distance * pi / self.cutoff).cos() + 1.0)
        stages = on_chunks(Begin(features=features), prepared, edges)
        stages.append(Times(self.lin1(inputs.x[0]), cutoff))
        return edge_reduce(stages, edges, 'sum'), None

    def finish(self, out: Tensor, x: NodePair, begun: Tensor | None) -> Tensor:
        return self.lin2(out)
