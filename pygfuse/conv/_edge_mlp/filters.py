"""Layers whose network takes features of edges alone, and runs on chunks of edges."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pygfuse._lib.hooks import LINEAR, width_of
from pygfuse.conv._edge_mlp.network import (
    Stage,
    UnsupportedNetwork,
    check_widths,
    stages_of,
    tensors_of_stages,
)
from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import why_no_edge_chunks


class FilterConv(FusedConv):
    """A mixin for layers with a network ``nn`` of features of edges."""

    has_network = True

    def prepare(self) -> list[Stage] | str:
        try:
            return stages_of(self.nn)
        except UnsupportedNetwork as reason:
            return reason.args[0]

    def edge_width(self, x: NodePair) -> int | None:
        return width_of(next((module for module in self.nn.modules() if type(module) in LINEAR), None)) or -1

    def tensors_of_layer(self, prepared: list[Stage]) -> dict[str, Tensor]:
        return tensors_of_stages(prepared)

    def check(self, inputs: Inputs, prepared: list[Stage]) -> None:
        super().check(inputs, prepared)
        check_widths(prepared)

    def why_not_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> str | None:
        return why_no_edge_chunks(inputs.x[0].dtype)
