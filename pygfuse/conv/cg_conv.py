"""The fused crystal graph convolutional operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, PairTensor

from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.copies import EachCopy
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.spec import EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.degrees import counts_of
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.large_sums import added_to
from pygfuse.ops.nodes.linear import apply_weight
from pygfuse.program.library.crystal import CRYSTAL
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EDGE, SOURCE, TARGET


class CGConv(EachCopy, torch_geometric.nn.CGConv):
    r"""`torch_geometric.nn.CGConv`, fused: the same parameters, options and numbers.

    From the `"Crystal Graph Convolutional Neural Networks for an Accurate and Interpretable Prediction of Material
    Properties" <https://journals.aps.org/prl/abstract/10.1103/PhysRevLett.120.145301>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{x}_i + \sum_j \sigma (\mathbf{W}_f \mathbf{z}_{ij} + \mathbf{b}_f) \odot
        \mathrm{softplus} (\mathbf{W}_s \mathbf{z}_{ij} + \mathbf{b}_s), \quad
        \mathbf{z}_{ij} = [\mathbf{x}_i, \mathbf{x}_j, \mathbf{e}_{ij}]

    Each linear map is taken apart: the ends' parts once a node, the part of edges within the walk.

    Args:
        channels, dim, aggr, batch_norm, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = CGConv(16)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': PairTensor, 'edge_attr': OptTensor}
    spec = Spec(
        CRYSTAL, edge=EdgeFeatures('dim', required=True), in_channels='channels', maps=('lin_f', 'lin_s'),
        parameter='lin_f', needs_targets=True, static=True, reorganised=True, saves_rows=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, edge_attr: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``CGConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr)

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        operands: dict[str, OperandValue] = {}
        as_dst, as_src = counts_of(edges, x[0])
        for name, linear in (('f', self.lin_f), ('s', self.lin_s)):
            of_dst, of_src, of_edge = linear.weight.split([x[1].shape[1], x[0].shape[1], self.dim], dim=1)
            operands[name] = apply_weight(x[0], of_src, None, as_src)
            operands[f'{name}_dst'] = apply_weight(x[1], of_dst, linear.bias, as_dst)
            if edge is not None:
                operands[f'{name}_edge'] = edge.times(of_edge.t())
        return operands

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        of_target, of_source = x[1].shape[1], x[0].shape[1]
        made: dict[str, tuple[Part, ...]] = {}
        for linear, name in enumerate('fs'):
            made[name] = (Part(SOURCE, linear, (of_target, of_source), biased=False),)
            made[f'{name}_dst'] = (Part(TARGET, linear, (0, of_target)),)
            if features is not None:
                columns = of_target + of_source, self.dim
                made[f'{name}_edge'] = (Part(EDGE, linear, columns, biased=False),)
        added = (Part(TARGET),) if self.bn is None else ()
        form = Form(CRYSTAL, made, 1, of_target, reduce=self.reduction, added=added, of_edges=True)
        return FewWalk(form, ('lin_f', 'lin_s'), takes_features=features is not None)

    def finish_few(self, out: Tensor, x: NodePair, edges: FewEdges) -> Tensor:
        return out if self.bn is None else self.finish(out, x, None)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        return added_to(out, x[1]) if self.bn is None else self.bn(out) + x[1]
