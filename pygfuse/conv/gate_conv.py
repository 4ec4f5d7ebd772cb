"""The fused attention over edge features of AttentiveFP."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.models import attentive_fp

from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import AFTER_DROPOUT, SUMS, EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.degrees import counts_of
from pygfuse.ops.nodes.linear import apply_weight
from pygfuse.program.library.gate import GATE
from pygfuse.program.products import OperandValue


class GATEConv(FusedConv, attentive_fp.GATEConv):
    r"""`torch_geometric.nn.models.attentive_fp.GATEConv`, fused: the same parameters and numbers.

    From the `"Pushing the Boundaries of Molecular Representation for Drug Discovery with the Graph Attention Mechanism"
    <https://pubs.acs.org/doi/10.1021/acs.jmedchem.9b00959>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{b} + \sum_j \alpha_{ij} \mathbf{W}_2 \mathbf{x}_j, \quad
        \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \mathrm{LeakyReLU} \left( \mathbf{a}_l^{\top} \mathrm{LeakyReLU}
        (\mathbf{W}_1 [\mathbf{x}_j, \mathbf{e}_{ij}]) + \mathbf{a}_r^{\top} \mathbf{x}_i \right)

    The first linear map is taken apart: its part of nodes once a node, its part of edges within the walk.

    Args:
        in_channels, out_channels, edge_dim, dropout: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = GATEConv(16, 16, edge_dim=5)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 5)).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'alpha': Tensor}
    edge_updater_type: ClassVar = {'x': Tensor, 'edge_attr': Tensor}
    spec = Spec(
        GATE, SUMS, edge=EdgeFeatures('lin1', required=True), maps=('lin1', 'lin2'), parameter='lin1',
        attention=AFTER_DROPOUT, bipartite=False, node_dims=(0,), reorganised=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GATEConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr)

    def edge_width(self, x: NodePair) -> int | None:
        return self.lin1.weight.shape[1] - self.att_r.shape[1]

    def check(self, inputs: Inputs, prepared: Any) -> None:
        x, width = inputs.x[0], self.att_r.shape[1]
        if x.dim() != 2 or x.shape[1] != width:
            raise ValueError(f"Expected 'x' of shape [nodes, {width}] (got shape {list(x.shape)})")

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        _, as_source = counts_of(edges, x[0])
        of_node, of_edge = self.lin1.weight.split([x[0].shape[1], edge.values.shape[1]], dim=1)
        return {
            'x': self.lin2(x[0]),
            'key': apply_weight(x[0], of_node, None, as_source),
            'query': F.pad(x[1] @ self.att_r.t(), (0, self.lin2.weight.shape[0] - 1)),
            'edge': edge.times(of_edge.t()),
            'att': self.att_l,
        }

    def finish(self, out: Tensor, x: NodePair, begun: Tensor | None) -> Tensor:
        return self.with_bias(out)
