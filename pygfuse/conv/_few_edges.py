"""Layers that take so few edges as they come.

That is decided by the sizes of a call and not by what was done with its edges before: a call gives the same bits each
time.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.note import Note
from pygfuse.conv._checks import NodePair
from pygfuse.mapping.few_edges import are_few, counted_bytes
from pygfuse.ops.few_edges import FewEdges
from pygfuse.ops.listed import savable


class OverFewEdges:
    """A mixin for layers, of which those that take few edges as they come say here how."""

    note: Note
    flow: str

    def form_of_few(self, x: Tensor | NodePair, prepared: Any) -> Any:
        """How the layer runs along few edges, the form of a sum (`pygfuse.ops.few_edges`) or what else `sum_few` takes;
        None where it takes them as it takes many."""
        return None

    def width_of_few(self, width: int, form: Any) -> int:
        """How wide the rows are that it adds or holds then, given features of this width."""
        return width

    def products_of_few(self, form: Any) -> tuple[int, int]:
        """How many numbers it multiplies then for an edge and for a node, beside rows."""
        return 0, 0

    def sum_few(self, x: NodePair, edges: FewEdges, prepared: Any) -> Tensor:
        """Its output then; where a call gives one tensor, both of `x` are it."""
        raise NotImplementedError

    def forms_of_few(
        self, x: Tensor | NodePair, edge_index: Tensor, given: Mapping[str, Any], prepared: Any
    ) -> tuple | None:
        """How calls of a kind run along few edges, as `pygfuse._lib.note.Note` has it.

        Args:
            x, edge_index, given: What the layer is called with.
            prepared: What it read of itself.
        """
        source, form = x[0] if isinstance(x, tuple) else x, self.form_of_few(x, prepared)
        if form is None or any(value is not None for value in given.values()):
            return None
        has_kernel = edge_index.dtype is torch.int64 and few_edges_of(edge_index.device) is not None
        if not (has_kernel and source.dim() == 2 and source.shape[1]):
            return None
        width = self.width_of_few(source.shape[1], form)
        if not width:
            # no kernel would check the edges
            return None
        return form, counted_bytes(width, source.element_size()), self.products_of_few(form)

    def few_edges(self, x: Tensor | NodePair, edge_index: Tensor, forms: tuple | None) -> FewEdges | None:
        """The edges of a call, if such calls take few edges as they come and they are so few.

        Args:
            x, edge_index: What the layer is called with.
            forms: As of `forms_of_few`.
        """
        if forms is None:
            return None
        is_list = edge_index.is_contiguous() and edge_index.shape[0] == 2
        source, target = x if type(x) is tuple else (x, x)
        if not is_list or source.layout is not torch.strided:
            return None
        num_sources = source.shape[0]
        num_targets = num_sources if target is None or target is source else target.shape[0]
        if not are_few(edge_index.shape[1], num_sources + num_targets, *forms[1:]):
            return None
        return FewEdges(savable(edge_index), self.flow, num_sources, num_targets, weakref.ref(self.note))
