"""Layers that aggregate features and then map them: which comes first does not matter to a sum."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import why_not_linear
from pygfuse.conv._checks import NodePair
from pygfuse.conv._edges import EdgeInput
from pygfuse.conv._layer import FusedConv, total
from pygfuse.conv._spec import REDUCTIONS, SUMS
from pygfuse.ops import Edges
from pygfuse.ops.linear import apply_linear
from pygfuse.ops.sparse_features import SparseFeatures
from pygfuse.program.products import OperandValue


class MappedSums(FusedConv):
    """A mixin for layers that map what they have aggregated.

    Sparse features, which an aggregation would make dense, are mapped first.
    """

    # the layer's attribute that holds the map
    sums_mapped_by: ClassVar[str]

    def maps_first(self, x: Tensor) -> bool:
        """Whether the layer maps its features before it aggregates them."""
        if not isinstance(x, SparseFeatures) or not isinstance(self.aggr, str) or REDUCTIONS.get(self.aggr) not in SUMS:
            return False
        return why_not_linear(getattr(self, self.sums_mapped_by), 'it') is None

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        if self.maps_first(x[0]):
            x = F.linear(x[0], getattr(self, self.sums_mapped_by).weight), None
        return super().operands(x, edge, edges)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        linear = getattr(self, self.sums_mapped_by)
        return total(out, linear.bias) if self.maps_first(x[0]) else apply_linear(linear, out)
