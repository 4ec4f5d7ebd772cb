"""Modules of a user's own that gather and reduce along an ``edge_index`` themselves, captured whole and compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.callers import kept_from_callers
from pygfuse.compiler import Plan, Reason, Refused
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.functions.scattering import NO_ROW_OF_EDGES
from pygfuse.compiler.modules.captured_module import OF_MODULE, CapturedModule, capture_module
from pygfuse.compiler.symbols.places import BY_OTHERS, OTHER_ENDS
from pygfuse.conv._compiled.call import check_types
from pygfuse.conv._compiled.planned import Planned
from pygfuse.conv._compiled.plans import held, key_of, planned
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.repeated import is_plain_place
from pygfuse.conv._layer.scripting import told_of
from pygfuse.conv._layer.untraced import UNTRACED
from pygfuse.conv._modules.calls import (
    ALL_EMBEDDED,
    ALL_SETS,
    NO_EDGES,
    ONE_SET,
    ModuleCall,
    Sets,
    call_of,
)
from pygfuse.conv._modules.copies_of_nodes import OTHER_NODES
from pygfuse.conv._modules.few_edges import Few
from pygfuse.conv._modules.held_by_name import NOTHING_READ, Read, read_by
from pygfuse.conv._modules.traced_calls import ModuleTracedByTorch
from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.remade_edges import graph_of
from pygfuse.mapping.few_edges import fewest_of
from pygfuse.ops import Edges
from pygfuse.ops.listed import savable, stand_for_themselves


class Row(NamedTuple):
    """To which nodes a module reduces.

    Attributes:
        target: The row of the edges that holds them.
        to_both: Whether it reduces to those of the other row, too.
        gathers_apart: Whether what it gathers are values of their own, of which nodes without edges are none.
    """

    target: int
    to_both: bool
    gathers_apart: bool = False


# in the order in which they are tried; PyG's flow has the first
_ROWS = Row(1, False), Row(0, False), Row(1, True), Row(0, True)


# why features are not read that have dimensions before that of nodes
_OF_OTHER_DIMENSIONS = 'an index by values', NO_ROW_OF_EDGES


class CompiledModule(ModuleTracedByTorch, Planned):
    """A mixin before a class of modules: its ``forward`` runs what the compiler makes of it.

    What has no fused form runs the class's own ``forward``, and `pygfuse.report` says why.
    """

    is_captured_whole = True
    _of_calls = '_plans', '_row', '_has_copies', '_sets', '_has_none', '_few', '_read'
    # what it is known to read of objects that are arguments
    _read: Read = NOTHING_READ
    _row: Row = _ROWS[0]
    # whether the call before had several copies of its nodes
    _has_copies: bool = False
    # which nodes the rows of the edges named in the call before
    _sets: Sets = ONE_SET
    # a kind of calls without a plan, whatever nodes the rows name, and why
    _has_none: tuple[Any, str] | None = None
    # calls whose edges are so few that nothing else has to be looked at
    _few: Few | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module; arguments and results are those of its class."""
        found = self.run_traced(args, kwargs) if torch.compiler.is_compiling() else self._run(args, kwargs)
        if isinstance(found, str) and found == UNTRACED:
            found = self._run(args, kwargs)
        if self.runs_fused(found if isinstance(found, str) else None):
            return found[0]
        return self.plain.forward(self, *args, **kwargs)

    def why_not(self) -> str | None:
        """The reason, if any, for which this module as it stands runs its own ``forward``."""
        return None

    def __prepare_scriptable__(self) -> Module:
        """What TorchScript compiles: a module of the class behind this one, of the same parameters."""
        plain = self.plain.__new__(self.plain)
        plain.__dict__ = self.__getstate__()
        return plain

    # also where torch leaves a ``forward`` untraced by itself, but not what it calls: that of sparse matrices
    @torch.compiler.disable
    def _run(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[Any] | str:
        """What a call returns, in a tuple, or why it runs the class's own ``forward``."""
        reason = fallback.why_not_here()
        if reason is None and self._few is not None and self._few.has(args, kwargs):
            reason = self._few.reason
        if reason is not None:
            return reason
        try:
            return self._run_call(*self._call_and_plan(args, kwargs))
        except Refused as refusal:
            return Reason.of(refusal)

    def _call_and_plan(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[ModuleCall, Plan | str]:
        """A call, its objects with no more than what the module reads of them, and its plan."""
        while True:
            call, plan = self._first_of_kinds(args, kwargs)
            read = read_by(call.objects, self._read)
            if read == self._read or not self._may_be_called(args, kwargs, read):
                return call, plan
            # a plan depends on all that may be read
            self._read, self._plans = read, {}

    def _first_of_kinds(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[ModuleCall, Plan | str]:
        """A call and its plan, of one graph or of several copies of one, as the call before had."""
        found: list[tuple[ModuleCall, Plan | str]] = []
        refusals: list[Refused] = []
        for has_copies in (self._has_copies, not self._has_copies):
            try:
                call, plan = self._first_of_sets(args, kwargs, has_copies)
            except Refused as refusal:
                refusals.append(refusal)
                continue
            if isinstance(plan, Plan):
                self._has_copies = has_copies
                return call, plan
            found.append((call, plan))
        if not found:
            raise refusals[0]
        # as copies alone it may be read otherwise than by rows
        return next((one for one in found if one[0].copies.sizes and found[0][1] in _OF_OTHER_DIMENSIONS), found[0])

    def _first_of_sets(self, args: tuple, kwargs: Mapping[str, Any], has_copies: bool) -> tuple[ModuleCall, Plan | str]:
        """A call and its plan, by the first sets of nodes that its edges may lead between of which there is one."""
        tried: list[tuple[ModuleCall, str]] = []
        for sets in (self._sets, *[sets for sets in ALL_SETS if sets != self._sets]):
            # two sets only where arguments tell them, and the second number alone only where none does
            if tried and (len(tried[0][0].counts) <= max(sets) or tried[0][0].is_told == (sets == ALL_EMBEDDED)):
                continue
            if tried and self._has_none is not None and self._has_none[0] == self._kind_of(tried[0][0]):
                return tried[0][0], self._has_none[1]
            try:
                call = call_of(self.plain, args, kwargs, self._read, sets, self, has_copies)
            except Refused:
                if sets == ONE_SET:
                    raise
                continue
            plan = self.plan_of_call(call)
            if isinstance(plan, Plan):
                self._sets = sets
                return call, plan
            tried.append((call, plan))
        # which nodes it takes them for decides why there is none
        of_two = [one for one in tried if len(one[0].num_nodes) > 1 and one[1] != OTHER_ENDS]
        found = of_two[0] if of_two else next(one for one in tried if len(one[0].num_nodes) == 1)
        if len(tried) > 1:
            self._has_none = self._kind_of(tried[0][0]), found[1]
        return found

    def _kind_of(self, call: ModuleCall) -> Any:
        """What says whether there is something new to try for a call without a plan."""
        return key_of(call.given), sum(map(len, (self._plans or {}).values()))

    def _may_be_called(self, args: tuple, kwargs: Mapping[str, Any], read: Read) -> bool:
        """Whether a call with no more than that of its objects is one."""
        with contextlib.suppress(Refused):
            return call_of(self.plain, args, kwargs, read, self._sets, self, self._has_copies) is not None
        return False

    def _run_call(self, call: ModuleCall, plan: Plan | str) -> tuple[Any] | str:
        given = call.tensors
        # where no argument tells, parameters say what it computes with
        are_told = any(one.is_floating_point() for one in given.values())
        check_types(given if are_told else dict(self.named_parameters()))
        if isinstance(plan, str):
            return plan
        fewest = self._fewest_edges(plan, call)
        if call.num_edges < fewest:
            # no argument tells those that it holds
            if not call.names[0].startswith(OF_MODULE):
                self._few = Few.of(self.plain.forward, call, fewest, plan.why_few)
            return plan.why_few
        captured: CapturedModule = plan.captured
        sets, run = [call.edge_index], call.run(captured.target_row)
        if captured.remade_by is not None:
            sets, given = captured.remade_by.of_call(run)
        if any(edge_index.shape[1] == 0 for edge_index in sets) and not _runs_without_edges(plan, sets):
            return NO_EDGES
        edges, *others = [self._edges(call._replace(edge_index=one), captured.target_row) for one in sets]
        if others:
            edges = dataclasses.replace(edges, others=tuple(others))
        reason = plan.why_not(edges, given)
        if reason is not None:
            return reason
        given = kept_from_callers(_with_copies(given, captured))
        if captured.for_layers:
            # what is drawn for both is the same
            given = {**given, **{name: run.made(made) for name, made in captured.for_layers.items()}}
        if is_plain_place():
            return (captured.returns(plan.run(edges, given, self.note), call.arguments),)
        with self.noted():
            return (captured.returns(plan.run(edges, given), call.arguments),)

    def _edges(self, call: ModuleCall, target_row: int) -> Edges:
        sizes, flow = call.sizes(target_row), FLOWS[1 - target_row]
        if stand_for_themselves(call.edge_index):
            for rows, nodes in _by_nodes(call):
                low, high = torch.aminmax(rows) if rows.numel() else (0, -1)
                if low < 0 or high >= nodes:
                    # torch counts negative numbers from the end, and has an error of its own for others
                    raise Refused(OTHER_NODES)
            return Edges(savable(call.edge_index), *sizes, flow)
        try:
            graph, _ = graph_of(self.note, call.edge_index, flow, *sizes)
            # which finds such edges
            _ = graph.csr
        except ValueError as error:
            raise Refused(OTHER_NODES) from error
        return Edges(graph.token, *sizes, flow, None, graph)

    def _fewest_edges(self, plan: Plan, call: ModuleCall) -> int:
        """Along how many edges a plan takes less than the module's own code."""
        is_measured = few_edges_of(call.edge_index.device) is not None
        has_copies = bool(call.copies.sizes)
        fewest = fewest_of(is_of_a_module=True, is_of_a_matrix=call.is_of_a_matrix, is_of_copies=has_copies)
        return max(plan.fewest_edges, fewest) if is_measured else 0

    def plan_of_call(self, call: ModuleCall) -> Plan | str:
        """The plan of a call, or why there is none."""
        if self._plans is None:
            self._plans = {}
        key, reasons = key_of(call.given), []
        # in most calls as in the one before
        plan = held(self._plans, (self._row, key), call.num_edges_held, call.run(self._row.target))
        if _is_run(plan):
            return plan
        for row in _ROWS:
            if row.to_both and any(reason != BY_OTHERS for reason in reasons[:2]):
                continue
            plan = self._planned(call, key, row)
            if isinstance(plan, Plan) and not _is_run(plan):
                row = row._replace(gathers_apart=True)
                plan = self._planned(call, key, row)
            if isinstance(plan, Plan):
                self._row = row
                return plan
            reasons.append(plan)
        return next((reason for reason in reasons if reason != BY_OTHERS), BY_OTHERS)

    def _planned(self, call: ModuleCall, key: Any, row: Row) -> Plan | str:
        """The plan of a call that reduces so, or why there is none."""
        run = call.run(row.target)
        capture = functools.partial(
            capture_module,
            self.plain,
            self,
            call.nested,
            row.target,
            run,
            to_both=row.to_both,
            of_two_sets=len(call.num_nodes) > 1,
            gathers_apart=row.gathers_apart,
            copies=call.copies,
        )
        return planned(self._plans, (row, key), capture, call.num_edges_held, run)


def _with_copies(given: Mapping[str, Tensor], captured: CapturedModule) -> Mapping[str, Tensor]:
    """The tensors of a call, of those that it writes into copies, which backward reads.

    Raises:
        Refused: If others lie in the same memory.
    """
    names = [name for name, _ in captured.written if name in given]
    if not names:
        return given
    strided = {name: one for name, one in given.items() if one.layout is torch.strided}
    memory = {name: one.untyped_storage().data_ptr() for name, one in strided.items()}
    for name in names:
        if any(other == memory[name] for key, other in memory.items() if key != name):
            raise Refused(f'it writes into {name}, whose memory another argument has')
    return {**given, **{name: given[name].clone() for name in names}}


def _runs_without_edges(plan: Plan, sets: Sequence[Tensor]) -> bool:
    """Whether a plan runs where some of its sets of edges are empty: programs do, if nobody asked whether they are."""
    are_there = any(edge_index.shape[1] > 0 for edge_index in sets)
    return are_there and not plan.captured.asks_for_edges and all(isinstance(f, Walk) for f in plan.walks.values())


def _is_run(plan: Plan | str | None) -> bool:
    """Whether a plan may run: where nodes without edges are replaced, this is so for what is gathered alone."""
    return isinstance(plan, Plan) and (plan.captured.gathers_apart or not plan.guarded)


def _by_nodes(call: ModuleCall) -> Iterable[tuple[Tensor, int]]:
    """The rows of the edges that name nodes of a set, and how many there are of these."""
    return zip([call.edge_index] if len(call.num_nodes) == 1 else call.edge_index, call.num_nodes, strict=True)


@functools.cache
def compiled_module(plain: type[Module]) -> type:
    """The compiled form of a class.

    Example:
        >>> class Layer(torch.nn.Module):
        ...     def forward(self, x, edge_index):
        ...         return x.new_zeros(x.shape).index_add(0, edge_index[1], x[edge_index[0]])
        >>> compiled_module(Layer).__name__
        'Layer'
    """
    return type(plain.__name__, (CompiledModule, plain), {**told_of(plain), 'plain': plain})


CompiledModule.compiled = compiled_module
