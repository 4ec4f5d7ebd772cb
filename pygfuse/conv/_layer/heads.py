"""What layers with attention heads share."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.typing import OptTensor

from pygfuse.conv._layer.checks import Inputs, NodePair, is_first_rows
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Part
from pygfuse.ops.nodes.large_sums import mean_of_heads, total
from pygfuse.ops.nodes.linear import apply_linear, is_plain_linear
from pygfuse.program.program import TARGET


class HeadsConv(FusedConv):
    """A mixin for layers whose rows are those of several heads side by side."""

    def forward(
        self, x: Any, edge_index: Any, edge_attr: OptTensor = None, return_attention_weights: bool | None = None
    ) -> Any:
        """Runs the layer; arguments and results are those of that method of PyG's layer."""
        given = {'edge_attr': edge_attr, 'return_attention_weights': return_attention_weights}
        return self.fused(x, edge_index, **given)

    def by_head(self, x: Tensor) -> Tensor:
        """Rows of all heads as ``[rows, heads, channels]``."""
        return x.view(-1, self.heads, self.out_channels)

    def both_by_head(self, x: NodePair, source: Module, target: Module, is_shared: bool) -> NodePair:
        """What maps of sources and of targets give, by head.

        Args:
            x: Features of both sides; the second may be missing.
            source, target: The maps.
            is_shared: Whether one tensor for both sides is mapped once, by the first.
        """
        x_src = self.by_head(apply_linear(source, x[0]))
        if x[1] is None or (is_shared and x[1] is x[0]):
            return x_src, None if x[1] is None else x_src
        if source is target and is_first_rows(x) and is_plain_linear(source):
            return x_src, x_src[: x[1].shape[0]]
        return x_src, self.by_head(apply_linear(target, x[1]))

    def is_side_by_side(self) -> bool:
        """Whether heads come as they are."""
        return self.concat or self.heads == 1

    def combined(self, out: Tensor) -> Tensor:
        """Heads side by side, as they come, or their mean."""
        return out if self.concat else mean_of_heads(self.by_head(out))


class AttentionConv(HeadsConv):
    """A mixin for layers with heads, a residual map and a bias."""

    def begin(self, inputs: Inputs) -> OptTensor:
        return None if self.res is None or inputs.x[1] is None else self.res(inputs.x[1])

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        return self.with_bias(total(self.combined(out), begun))

    def finish_few(self, out: Tensor, x: NodePair, edges: FewEdges) -> Tensor:
        if self.is_side_by_side():
            return out
        return self.finish(out, x, None if self.res is None else self.res(x[1]))

    def added_of_few(self, place: int) -> tuple[tuple[str, ...], tuple[Part, ...]]:
        """The names of the residual map and of the bias, and their parts, where the node of maps and walk adds them.

        Args:
            place: How many maps the node has before.
        """
        if not self.is_side_by_side():
            return (), ()
        names = (() if self.res is None else ('res',)) + (('bias',) if self.has_bias() else ())
        return names, tuple(Part(TARGET if name == 'res' else None, k) for k, name in enumerate(names, place))
