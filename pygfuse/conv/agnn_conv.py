"""The fused attention operator with cosine scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor

from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import SUMS, Spec
from pygfuse.ops import Edges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.directions import DIRECTIONS, directions
from pygfuse.program.library.agnn import AGNN
from pygfuse.program.products import OperandValue
from pygfuse.program.program import SOURCE


class AGNNConv(FusedConv, torch_geometric.nn.AGNNConv):
    r"""`torch_geometric.nn.AGNNConv`, fused: the same parameters, options and numbers.

    From the `"Attention-based Graph Neural Network for Semi-Supervised Learning" <https://arxiv.org/abs/1803.03735>`_
    paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}(i) \cup \{ i \}} \alpha_{ij} \mathbf{x}_j, \quad
        \alpha_{ij} = \underset{j}{\mathrm{softmax}} \; \beta \cos(\mathbf{x}_i, \mathbf{x}_j)

    Args:
        requires_grad, add_self_loops: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> AGNNConv()(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'x_norm': Tensor}
    spec = Spec(AGNN, SUMS, parameter='beta', loops=True, bipartite=False, static=True)

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``AGNNConv.forward``."""
        return self.fused(x, edge_index)

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk:
        form = Form(
            *(AGNN, {'x': (Part(SOURCE),)}, 1, x[0].shape[1]),
            derived=(DIRECTIONS,), reduce=self.reduction, loops=self.adds_loops(),
        )  # fmt: skip
        return FewWalk(form, (), ('beta',))

    def operands(self, x: NodePair, edge: None, edges: Edges) -> dict[str, OperandValue]:
        return dict(zip(('x', 'x_norm', 'x_norm_dst'), directions(x[0], self.beta), strict=True))
