"""Calls of a compiled layer that are like an earlier one: their plan, and where its tensors are, is known."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.note import Note
from pygfuse.compiler import Plan
from pygfuse.compiler.capture.watch import Guards
from pygfuse.conv._compiled.call import SIMPLE, Call
from pygfuse.conv._compiled.known_arguments import KnownArguments
from pygfuse.conv._layer.repeated import Kind, identities_of, is_like, is_plain_call, shape_of_rows
from pygfuse.conv._layer.stacks import run_over_stacks
from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.remade_edges import graph_of
from pygfuse.ops import Edges
from pygfuse.ops.listed import savable, stand_for_themselves
from pygfuse.ops.within_torch.intercepted import PLAIN

# what a layer does by turns, as one with several calls of `propagate`
_MOST_KINDS = 4
# of the class behind the compiled one: where they are replaced, messages are not all that it computes
_plumbing_of = operator.attrgetter('propagate', '_collect', '_lift')
# what sizes are made of
_SIZES = {int, type(None)}


def kind_of_call(layer: Any, adjacency: Any, size: Any, kwargs: Mapping[str, Any]) -> Kind | None:
    """What decides how a call of ``propagate`` runs but for numbers of nodes and edges and what a plan guards.

    Args:
        layer: A compiled layer.
        adjacency, size, kwargs: What ``propagate`` was given.

    Returns:
        What is compared by identity, and what by value; None where that is not so little.
    """
    if torch.compiler.is_compiling() or not is_plain_call(layer, adjacency):
        return None
    if layer.flow != FLOWS[0] or adjacency.dim() != 2:
        return None
    if size is not None and (
        type(size) not in (tuple, list) or len(size) != 2 or not _SIZES.issuperset(map(type, size))
    ):
        return None
    shapes = [torch.get_default_dtype(), adjacency.dtype, adjacency.device, adjacency.shape[1] > 0, *kwargs]
    shapes.append(None if size is None else tuple([count is None for count in size]))
    are_stacked = layer.node_dim == -2
    for value in kwargs.values():
        kind = type(value)
        if kind in PLAIN and are_stacked and value.dim() == 3:
            shapes += _shape_of_stack(value)
        elif kind in PLAIN:
            shapes += shape_of_rows(value)
        elif kind in SIMPLE:
            shapes += kind, value
        elif kind is tuple and len(value) == 2:
            shapes.append(kind)
            for part in value:
                if part is not None and type(part) not in PLAIN:
                    return None
                shapes.append(None if part is None else shape_of_rows(part))
        else:
            return None
    return (*_plumbing_of(layer.plain), *identities_of(layer)), shapes


def _shape_of_stack(tensor: Tensor) -> tuple:
    """What features ``[*, nodes, channels]`` are but for the number of nodes."""
    count, rows, channels = tensor.shape
    return tensor.dtype, tensor.device, count, channels, rows > 0


def fewest_edges_of(plan: Plan, call: Call) -> int:
    """Along how many edges of a call a plan takes less than PyG's operators, as measured on a CPU."""
    if few_edges_of(call.edges.walked.device) is None:
        return 0
    if not call.stacks:
        return plan.fewest_edges
    # as many copies of the edges
    count = max(next(iter(call.stacks.values())).shape[0], 1)
    return (plan.fewest_edges - 1) // count + 1 if plan.are_sums else 0


@dataclasses.dataclass(frozen=True)
class KnownCall:
    """A call, and what ran it.

    Attributes:
        kind: Calls of this kind run alike.
        plan: What runs it.
        arguments: Where its tensors are; None where that is not so easily found.
        fewest_edges: Along fewer, PyG's operators take less.
    """

    kind: Kind
    plan: Plan
    arguments: KnownArguments | None
    fewest_edges: int

    @staticmethod
    def of(layer: Any, kind: Kind, plan: Plan, call: Call, kwargs: Mapping[str, Any]) -> KnownCall | None:
        """What is to be known of a call; None where the next of its kind takes all the looking again."""
        arguments, fewest_edges = KnownArguments.of(layer, call, kwargs), fewest_edges_of(plan, call)
        return None if arguments is None and not fewest_edges else KnownCall(kind, plan, arguments, fewest_edges)

    def why_not(self, num_edges: int) -> str | None:
        """The reason, if any, for which PyG's operators run along so many edges."""
        return self.plan.why_few if num_edges < self.fewest_edges else None

    def few(self, layer: Any, adjacency: Tensor, kwargs: Mapping[str, Any]) -> FewEdges:
        """What tells that the next call of this kind has few edges, with a shorter look."""
        return FewEdges(self.fewest_edges, _kind_of_few(layer, adjacency, kwargs), self.plan.why_few)

    def run(self, layer: Any, adjacency: Tensor, size: Any, kwargs: Mapping[str, Any]) -> Tensor | None:
        """The aggregated messages of a call of this kind; None if it is not like the one before after all.

        Args:
            layer: The layer.
            adjacency, size, kwargs: What ``propagate`` was given.
        """
        arguments = self.arguments
        if arguments is None or not self.plan.captured.guards.hold(adjacency.shape[1]):
            return None
        tensors, edges = arguments.tensors(adjacency.shape[1], kwargs), self.edges(layer, adjacency, size, kwargs)
        if tensors is None or edges is None or self.plan.why_not(edges, tensors) is not None:
            return None
        note = layer.note
        note.reason = note.forward = None
        stacks = arguments.stacks_of(tensors)
        if stacks is None:
            return self.plan.run(edges, tensors, note)
        return run_over_stacks(self.plan, edges, tensors, stacks, note)

    def edges(self, layer: Any, adjacency: Tensor, size: Any, kwargs: Mapping[str, Any]) -> Edges | None:
        """The edges of a call of this kind; None if its tensors do not agree on the numbers of nodes."""
        counts = self.arguments.num_nodes(size, kwargs)
        if counts is None:
            return None
        if stand_for_themselves(adjacency):
            return Edges(savable(adjacency), *counts, FLOWS[0])
        graph, adjacency = graph_of(layer.note, adjacency, layer.flow, *counts)
        token = adjacency if graph.is_of(adjacency) else graph.token
        return Edges(token, *counts, FLOWS[0], None, graph)


class FewEdges(NamedTuple):
    """What tells that a call has so few edges that PyG's operators take less, which are right for any call.

    Attributes:
        fewest: From how many edges on they do not.
        kind: Of calls for which that is so.
        reason: Why PyG's operators run.
    """

    fewest: int
    kind: Kind
    reason: str

    def has(self, layer: Any, adjacency: Any, kwargs: Mapping[str, Any]) -> bool:
        """Whether a call has that few edges; arguments as of `kind_of_call`."""
        if type(adjacency) is not Tensor or adjacency.dim() != 2 or adjacency.shape[1] >= self.fewest:
            return False
        return is_like(_kind_of_few(layer, adjacency, kwargs), self.kind)


def _kind_of_few(layer: Any, adjacency: Tensor, kwargs: Mapping[str, Any]) -> Kind:
    """What decides along how many edges PyG's operators take less: what a layer holds, and the widths of arguments."""
    shapes = [torch.is_grad_enabled(), adjacency.device]
    for value in kwargs.values():
        for part in value if type(value) is tuple else (value,):
            shapes.append(part.shape[1:] if isinstance(part, Tensor) else None)
    return identities_of(layer), shapes


@dataclasses.dataclass(frozen=True)
class KnownRefusal:
    """A kind of calls whose message has no fused form, as long as what was read of the layer is the same.

    Attributes:
        kind: The kind.
        guards: What was read.
        reason: Why there is none.
    """

    kind: Kind
    guards: Guards
    reason: str

    def why_not(self, num_edges: int) -> str | None:
        """The reason for which PyG's operators run; None if the message may have become another."""
        return self.reason if self.guards.hold(num_edges) else None

    def run(self, layer: Any, adjacency: Tensor, size: Any, kwargs: Mapping[str, Any]) -> None:
        """Nothing: the call has to be looked at again."""


def few_edges_like(note: Note | None, layer: Any, adjacency: Any, kwargs: Mapping[str, Any]) -> FewEdges | None:
    """What tells that a call has few edges, if a layer's note knows that of such calls."""
    if note is None:
        return None
    return next((few for few in note.few_edges if few.has(layer, adjacency, kwargs)), None)


def remember_few_edges(layer: Any, few: FewEdges) -> None:
    """Keeps what tells that calls have few edges, in place of what the layer's note knew of such."""
    others = [other for other in layer.note.few_edges if not is_like(other.kind, few.kind)]
    layer.note.few_edges = (few, *others)[:_MOST_KINDS]


def call_like(kind: Kind, note: Note) -> KnownCall | KnownRefusal | None:
    """The earlier call of a kind, if a layer's note has one."""
    for known in note.calls:
        if is_like(kind, known.kind):
            return known
    return None


def remember(layer: Any, kind: Kind, call: Call, plan: Plan, kwargs: Mapping[str, Any]) -> None:
    """Keeps what is to be known of a call, if anything is, in place of what the layer's note knew of such shapes."""
    _keep(layer.note, kind, KnownCall.of(layer, kind, plan, call, kwargs))


def remember_refusal(layer: Any, kind: Kind, guards: Guards, reason: str) -> None:
    """Keeps that messages of calls of a kind are refused; arguments as of `KnownRefusal`."""
    _keep(layer.note, kind, KnownRefusal(kind, guards, reason))


def _keep(note: Note, kind: Kind, known: KnownCall | KnownRefusal | None) -> None:
    others = (other for other in note.calls if other.kind[1] != kind[1])
    note.calls = (*(() if known is None else (known,)), *others)[:_MOST_KINDS]
