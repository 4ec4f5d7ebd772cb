"""Layers of any class, PyG's or a user's own, whose messages the compiler fuses; their ``forward`` stays as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Size
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing, PNAConv

from pygfuse._lib.written_by_pyg import function_of, is_template
from pygfuse.compiler import Plan, Reason, Refused
from pygfuse.compiler.capture.layers import capture, capture_edge_update
from pygfuse.compiler.capture.watch import Guards
from pygfuse.conv._compiled.call import Call, collected, takes_weights
from pygfuse.conv._compiled.kept_apart import as_handed, kept_apart
from pygfuse.conv._compiled.known_calls import (
    KnownCall,
    call_like,
    few_edges_like,
    fewest_edges_of,
    kind_of_call,
    remember,
    remember_few_edges,
    remember_refusal,
)
from pygfuse.conv._compiled.leading_dimensions import as_before, as_one, leading_dimensions
from pygfuse.conv._compiled.planned import Planned
from pygfuse.conv._compiled.plans import key_of, planned
from pygfuse.conv._compiled.prepared_edges import with_prepared_edges
from pygfuse.conv._compiled.scaled_towers import ScaledTowers
from pygfuse.conv._compiled.traced_calls import TracedByTorch
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.as_list import over_lists
from pygfuse.conv._layer.checks import is_edge_index
from pygfuse.conv._layer.scripting import told_of
from pygfuse.conv._layer.untraced import NOT_TRACED, UNTRACED
from pygfuse.graph.adjacency import values_of
from pygfuse.mapping.few_edges import SO_FEW_EDGES

# mixins that compute the same by less than a class's own ``forward``
_BEFORE = {PNAConv: (ScaledTowers,)}


class CompiledConv(TracedByTorch, Planned):
    """A mixin before a class of convolutions: its ``propagate`` runs what the compiler makes of its messages.

    What has no fused form runs the class's own ``propagate``, and `pygfuse.report` says why.
    """

    plain: ClassVar[type[MessagePassing]]

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
        """PyG's ``propagate``, fused where it can be."""
        if torch.compiler.is_compiling():
            return self._propagate_traced(edge_index, size, kwargs)
        few = few_edges_like(self._note, self, edge_index, kwargs)
        if few is not None:
            return self._by_pyg(edge_index, size, kwargs, few.reason)
        if self.fuse and fallback.is_small_matrix(edge_index):
            return self._by_pyg(edge_index, size, kwargs, SO_FEW_EDGES)
        leading = leading_dimensions(self, kwargs)
        if leading is not None:
            return self._propagate_as_one(edge_index, size, kwargs, leading)
        given = kept_apart(self, kwargs)
        kind = kind_of_call(self, edge_index, size, given)
        known = None if kind is None or self._note is None else call_like(kind, self._note)
        reason = None if known is None else known.why_not(edge_index.shape[1])
        if reason is not None:
            # PyG's operators are right for every call: nothing else has to be looked at
            if isinstance(known, KnownCall):
                remember_few_edges(self, known.few(self, edge_index, kwargs))
            return self._by_pyg(edge_index, size, kwargs, reason)
        out = None if known is None else known.run(self, edge_index, size, given)
        if out is not None:
            return self.update(out, **known.arguments.for_update(kwargs))
        call, plan = self._planned(edge_index, size, given)
        if kind is not None and not isinstance(plan, str):
            remember(self, kind, call, plan, given)
        elif kind is not None and (guards := self._guards_of_refusal(call, plan)) is not None:
            remember_refusal(self, kind, guards, plan)
        if not isinstance(plan, str) and call.edges.num_edges < fewest_edges_of(plan, call):
            plan = plan.why_few
        if not self.runs_fused(plan if isinstance(plan, str) else None):
            return super().propagate(fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)
        with self.noted():
            out = call.run(plan)
        return self.update(out, **as_handed(call.of_update, given, kwargs))

    def _propagate_traced(self, edge_index: Any, size: Any, kwargs: Mapping[str, Any]) -> Any:
        """The same while torch compiles."""
        found = self.why_not() or fallback.why_not_here() or self.run_traced(edge_index, size, kwargs)
        if isinstance(found, str) and found == UNTRACED:
            return _propagate_untraced(self, edge_index, size, **kwargs)
        if not self.runs_fused(found if isinstance(found, str) else None):
            return super().propagate(fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)
        out, of_update = found
        return self.update(out, **of_update)

    def _propagate_as_one(self, edge_index: Any, size: Any, kwargs: Mapping[str, Any], leading: Size) -> Any:
        """The same of features of four and more dimensions."""
        call, plan = self._planned(edge_index, size, as_one(kwargs))
        if not self.runs_fused(plan if isinstance(plan, str) else None):
            return super().propagate(fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)
        with self.noted():
            out = as_before(call.run(plan), leading)
        return self.update(out, **{name: kwargs.get(name, value) for name, value in call.of_update.items()})

    def _by_pyg(self, edge_index: Any, size: Any, kwargs: Mapping[str, Any], reason: str) -> Any:
        """PyG's operators, for a reason that is no layer's as it stands."""
        self.note.tell(reason, False)
        self.note.forward = None
        return super().propagate(fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)

    def edge_updater(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
        """PyG's ``edge_updater``, fused where its result is a network's; else `propagate` alone says why it is not."""
        call, plan = self._planned(edge_index, size, kwargs, of_edges=True)
        if isinstance(plan, str) or call.edges.num_edges < fewest_edges_of(plan, call):
            return super().edge_updater(fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)
        with self.noted():
            return call.run(plan)

    def why_not(self) -> str | None:
        """The reason, if any, for which this layer as it stands runs PyG's own path."""
        for name in ('propagate', 'message', 'aggregate', 'update', 'edge_update', 'edge_updater'):
            if name in self.__dict__ and not (name == 'propagate' and self._is_ours(self.__dict__[name])):
                return f'{name} is overridden'
        return fallback.why_not_observed(self) or _why_not_class(self.plain)

    def _is_ours(self, function: Any) -> bool:
        return function_of(function) is CompiledConv.propagate

    def _planned(
        self, adjacency: Any, size: Any, kwargs: Mapping[str, Any], of_edges: bool = False
    ) -> tuple[Call | None, Plan | str]:
        """The call, and the plan that runs it or why none does."""
        reason = self.why_not() or fallback.why_not_here()
        if reason is None:
            reason = NOT_TRACED if torch.compiler.is_compiling() else fallback.why_not_device(adjacency)
        if reason is None and self.fuse and _runs_as_product(self, adjacency):
            if _is_sum_of_products(self, adjacency):
                kwargs = {**kwargs, 'edge_weight': None}  # the matrix has its own
            else:
                reason = 'message_and_aggregate of a sparse adjacency'
        if reason is None:
            reason = fallback.why_not_segments(self, adjacency)
        if reason is not None:
            return None, reason
        try:
            call = collected(self, adjacency, size, kwargs, of_edges)
            return call, self.plan_of_call(call, of_edges)
        except Refused as refusal:
            return None, Reason.of(refusal)

    def plan_of_call(self, call: Call, of_edges: bool = False) -> Plan | str:
        """The plan of a call, or why there is none.

        Args:
            call: The call.
            of_edges: Whether it is one of ``edge_update``.
        """
        plan = self.plan_of(call.given, of_edges, call.num_rows_of_edges)
        if isinstance(plan, str):
            return plan
        if call.stacks and plan.captured.stored:
            return 'values that are stored of features of more than two dimensions'
        return plan.why_not(call.edges, call.tensors) or plan

    def plan_of(self, given: Mapping[str, Any], of_edges: bool = False, num_edges: int | None = None) -> Plan | str:
        """The plan for arguments of these shapes, captured once, or why there is none.

        Args:
            given: The arguments.
            of_edges: Whether they are those of ``edge_update``.
            num_edges: Number of edges, where tensors of the layer may have a row for each.
        """
        if self._plans is None:
            self._plans = {}
        run = capture_edge_update if of_edges else capture
        return planned(self._plans, (of_edges, key_of(given)), lambda guards: run(self, given, guards), num_edges)

    def _guards_of_refusal(self, call: Call | None, plan: str) -> Guards | None:
        """What was read for a message that was refused for this reason; None if that was not the message's, or might be
        that of the numbers of rows alone."""
        if call is not None and call.reads_rows:
            return None
        known = (pair for pairs in (self._plans or {}).values() for pair in pairs)
        return next((guards for guards, found in known if found is plan), None)

    # What PyG, copies and pickles expect of a layer

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Nothing: PyG's templates belong to the class behind this one."""


@functools.cache
def compiled_class(plain: type[MessagePassing]) -> type:
    """The compiled form of a class.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> compiled_class(pyg.TAGConv).__name__
        'TAGConv'
    """
    names = told_of(plain)
    # what PyG puts into an instance when an explainer comes and goes
    original = getattr(plain, '_orig_propagate', MessagePassing.propagate)
    names |= with_prepared_edges(plain)
    if (forward := over_lists(plain, names.get('forward', plain.forward))) is not plain.forward:
        names['forward'] = forward
    names |= {'_orig_propagate': _given_int64(original), '_jinja_propagate': CompiledConv.propagate, 'plain': plain}
    return type(plain.__name__, (CompiledConv, *_BEFORE.get(plain, ()), plain), names)


CompiledConv.compiled = compiled_class


_propagate_untraced = torch.compiler.disable(CompiledConv.propagate)


def _given_int64(original: Callable) -> Callable:
    """A class's own ``propagate``, as explainers call it, which is not given an index that torch is wrong with."""

    @functools.wraps(original)
    def propagate(self: CompiledConv, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
        return original(self, fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)

    return propagate


# methods that PyG writes for each class
_OF_TEMPLATES = 'propagate', 'edge_updater'


def _why_not_class(plain: type) -> str | None:
    """The reason, if any, for which messages of a class are not all that it computes."""
    for name in ('propagate', 'edge_updater', '_collect', '_lift'):
        found, known = getattr(plain, name), getattr(MessagePassing, name)
        # PyG takes one that somebody wrote for its template, too
        if found is not known and not (name in _OF_TEMPLATES and is_template(plain, found, name)):
            return f'{name} is overridden'
    return None


def _runs_as_product(conv: Any, adjacency: Any) -> bool:
    """Whether PyG calls ``message_and_aggregate``, which may compute something else than ``message``."""
    if isinstance(adjacency, EdgeIndex):
        return conv.SUPPORTS_FUSED_EDGE_INDEX and adjacency.is_sorted_by_col
    return not is_edge_index(adjacency)


def _is_sum_of_products(conv: Any, adjacency: Any) -> bool:
    """Whether ``message_and_aggregate`` adds up what ``message`` gives for the values of the matrix.

    Of PyG's own classes that is so where a message is weighed by them, or where there are none.
    """
    plain = conv.plain
    if not plain.__module__.startswith('torch_geometric.nn.conv.') or conv.aggr not in ('add', 'sum'):
        return False
    if plain.aggregate is not MessagePassing.aggregate or isinstance(adjacency, EdgeIndex):
        return False
    return takes_weights(plain) or values_of(adjacency) is None
