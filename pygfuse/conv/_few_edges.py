"""Layers that sum neighbours, over so few edges that these are added up as they come.

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


class OverFewEdges:
    """A mixin for layers, of which those that add up neighbours say here how."""

    _note: Note | None
    flow: str

    def form_of_few(self) -> str | None:
        """How the layer adds along few edges (`pygfuse.ops.few_edges`); None where it takes them as it takes many."""
        return None

    def width_of_few(self, width: int) -> int:
        """How wide the rows are that it adds then, given features of this width."""
        return width

    def sum_few(self, x: NodePair, edges: FewEdges) -> Tensor:
        """Its output then."""
        raise NotImplementedError

    def note_few(self, x: Tensor | NodePair, edge_index: Tensor, given: Mapping[str, Any]) -> None:
        """Notes how calls of this kind add along few edges, or that they do not.

        Args:
            x, edge_index, given: What the layer is called with, of the kind in its note.
        """
        source, note = x[0] if isinstance(x, tuple) else x, self._note
        form, note.few = self.form_of_few(), None
        if form is None or any(value is not None for value in given.values()):
            return
        has_kernel = edge_index.dtype is torch.int64 and few_edges_of(edge_index.device) is not None
        if has_kernel and source.dim() == 2 and source.shape[1]:
            note.few = form, counted_bytes(self.width_of_few(source.shape[1]), source.element_size())

    def few_edges(self, x: Tensor | NodePair, edge_index: Tensor) -> FewEdges | None:
        """The edges of a call whose kind is noted, if such calls add along few edges and they are so few.

        Args:
            x, edge_index: What the layer is called with, of the kind in its note.
        """
        note = self._note
        if note.few is None:
            return None
        # autograd cannot save what inference mode made
        is_list = edge_index.is_contiguous() and edge_index.shape[0] == 2 and not edge_index.is_inference()
        source, target = x if type(x) is tuple else (x, x)
        if not is_list or source.layout is not torch.strided:
            return None
        num_sources = source.shape[0]
        num_targets = num_sources if target is None or target is source else target.shape[0]
        if not are_few(edge_index.shape[1], num_sources + num_targets, note.few[1]):
            return None
        return FewEdges(edge_index, self.flow, num_sources, num_targets, weakref.ref(note))
