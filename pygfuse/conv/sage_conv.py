"""The fused GraphSAGE operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.lstm import tree_of, why_not_lstm, why_not_shared
from pygfuse.conv._layer.map_first import MappedSums
from pygfuse.conv._layer.spec import EdgeWeight, Spec
from pygfuse.hag.prefix_tree import lstm_aggregate
from pygfuse.ops import Edges
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS


class SAGEConv(MappedSums, torch_geometric.nn.SAGEConv):
    r"""`torch_geometric.nn.SAGEConv`, fused: the same parameters, options and numbers.

    From the `"Inductive Representation Learning on Large Graphs" <https://arxiv.org/abs/1706.02216>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \cdot \mathrm{aggr}_{j \in \mathcal{N}(i)}
        \mathbf{x}_j

    The aggregation (mean, sum, max or min) is one walk over the edges. With ``aggr='lstm'``, targets whose neighbour
    lists begin alike share the steps of the LSTM, where that saves steps. Other aggregations run PyG's own path.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, aggr, normalize, root_weight, project, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = SAGEConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    sums_mapped_by, root_mapped_by = 'lin_l', 'lin_r'
    propagate_type: ClassVar = {'x': OptPairTensor}
    spec = Spec(
        NEIGHBOURS, edge=EdgeWeight(WEIGHTED_NEIGHBOURS, of_sparse_tensor=False), in_channels='in_channels',
        before='lin', static=True, matrix=True, hag=True, autocast=True, sparse=True,
    )  # fmt: skip

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``SAGEConv.forward``."""
        return self.fused(x, edge_index, size=size)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def has_root(self) -> bool:
        return self.root_weight

    @property
    def _projects(self) -> bool:
        return self.project and hasattr(self, 'lin')

    def before_sums(self, x: Tensor) -> Tensor:
        return self.lin(x).relu() if self._projects else x

    def after_sums(self, sums: Tensor, x: Tensor) -> Tensor:
        return self.finish(super().after_sums(sums, x), (x, x), None)

    # the steps of an LSTM are shared by targets whose lists of neighbours begin alike

    def why_not_reduce(self) -> str | None:
        return why_not_lstm(self.aggr_module) if self.aggr == 'lstm' else super().why_not_reduce()

    def why_not_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> str | None:
        return why_not_shared(inputs.adjacency, edges) if self.aggr == 'lstm' else None

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        # what projects would be called again where the walk is not taken after all
        return None if self._projects else super().walk_of_few(x, given, prepared)

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> Tensor:
        return super().sum_few((self.lin(x[0]).relu(), x[1]) if self._projects else x, edges, form, prepared)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        if self._projects:
            inputs = inputs._replace(x=(self.lin(inputs.x[0]).relu(), inputs.x[1]))
        if self.aggr != 'lstm':
            return super().aggregate_edges(inputs, edges, prepared)
        out = lstm_aggregate(tree_of(edges.graph()), inputs.x[0], self.aggr_module.lstm)
        return self.mapped_with_root(out, inputs.x[1]), None
