"""What runs in place of ``propagate``: operators of torch on nodes, and walks over the edges."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d

from pygfuse._lib.note import Note
from pygfuse.compiler.capture.layers import Captured
from pygfuse.compiler.forms.chunked import Chunked
from pygfuse.compiler.forms.cost import Cost, cost_of
from pygfuse.compiler.forms.directions import with_directions
from pygfuse.compiler.forms.extremes_of_one import GRADIENTS_OF_ONE, extremes_as_sums
from pygfuse.compiler.forms.form import Form, why_no_kernel
from pygfuse.compiler.forms.forms_of_results import forms_of_results
from pygfuse.compiler.forms.kept import shared_networks_kept, taken_together_kept
from pygfuse.compiler.forms.lowering import Walk, with_shared_products
from pygfuse.compiler.forms.normalised import normalised_kept, returned_normalised_kept
from pygfuse.compiler.forms.to_sources import reduced_by_walks
from pygfuse.compiler.forms.weighed import RETURNED_WEIGHTS
from pygfuse.compiler.functions.dropouts import check_taken_once
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.untouched import guarded_sides
from pygfuse.compiler.ir.values import (
    EDGE,
    REDUCTIONS,
    Node,
    has_statistics,
    in_order,
    is_of_one,
    mapped,
    of_input,
    results_of,
    set_of_edges,
    with_rows_of_edges,
)
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.passes import optimised
from pygfuse.compiler.passes.after_sum import linear_maps_after_sums
from pygfuse.compiler.passes.detached import detached_first
from pygfuse.compiler.passes.drawn_dropouts import dropouts_drawn
from pygfuse.compiler.passes.ones import ones_last
from pygfuse.compiler.passes.reordering import reorder_broadcasts
from pygfuse.compiler.passes.sums_apart import sums_taken_apart
from pygfuse.compiler.plan.by_type import types_in, why_no_types
from pygfuse.compiler.plan.fewest import are_sums, chunked_in, fewest_edges_of
from pygfuse.compiler.plan.steps import operands_of, steps_of
from pygfuse.compiler.plan.written import Run, written
from pygfuse.compiler.programs.emission import is_features
from pygfuse.compiler.refusal import Refused
from pygfuse.mapping.edge_chunks import are_many_to_keep, are_too_many_to_keep
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from pygfuse.ops import Edges

# passes that are left out, and added, where a reduction has neither a program nor a network: a map that is taken after
# a sum leaves its bias behind, which may ask for the same values a second time
_AFTER_SUMS = (linear_maps_after_sums.__name__,)
_OTHER_PASSES = (
    (_AFTER_SUMS, ()),
    ((), (sums_taken_apart.__name__,)),
    ((reorder_broadcasts.__name__,), ()),
    ((), (detached_first.__name__,)),
    ((), (ones_last.__name__,)),
)
# as many numbers computed on an edge as where values of networks are kept
_MUCH_LESS = 1.2


@dataclasses.dataclass(frozen=True)
class Plan:
    """A captured layer, lowered.

    Attributes:
        output: The result, or several.
        walks: The walk of each reduction and of each result of edges, by the identity of its value.
        steps: All values that have to be computed, in order.
        captured: What was captured.
        guarded: Residencies whose nodes without edges must not be computed (`pygfuse.compiler.ir.untouched`).
        without, more: The passes that were left out, and those that were added, as of `pygfuse.compiler.passes.stages`.
        keeps_wide: Whether values of edges may be kept that are as wide as messages.
    """

    output: Node
    walks: dict[int, Form]
    steps: tuple[Node, ...]
    captured: Captured
    guarded: frozenset[str]
    without: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    keeps_wide: bool = True

    @staticmethod
    def of(captured: Captured, without: Collection[str] = (), keeps_wide: bool = True) -> Plan:
        """Lowers what was captured.

        Args:
            captured: A layer.
            without: Names of passes to leave out.
            keeps_wide: Whether values of edges may be kept that are as wide as messages.

        Raises:
            Refused: If something has no fused form.
        """
        plan = Plan._with_dropouts(captured, without, keeps_wide)
        may_share = keeps_wide and len(plan.walks) > 1
        other = Plan._that_keeps_shared(captured, plan.without, plan.more) if may_share else None
        return plan if other is None or not other._is_much_less_than(plan) else other

    @staticmethod
    def _with_dropouts(captured: Captured, without: Collection[str], keeps_wide: bool) -> Plan:
        """The plan with the fewest shortcomings, whose dropouts are parts of walks or drawn where they are read."""
        found, refusals = [], []
        has_dropouts = any(node.op == 'dropout' for node in in_order(captured.output))
        for always in ((), (dropouts_drawn.__name__,)) if has_dropouts else ((),):
            try:
                found.append(Plan._best(captured, without, always, keeps_wide))
            except Refused as refusal:
                refusals.append(refusal)
            if found and not (found[0]._chunked_dropouts or any(found[0]._shortcomings[:2])):
                break
        if not found:
            raise refusals[0]
        return min(found, key=lambda plan: (plan._chunked_dropouts, *plan._shortcomings))

    @staticmethod
    def _best(captured: Captured, without: Collection[str], always: Collection[str], keeps_wide: bool) -> Plan:
        """The plan with the fewest shortcomings of those by other passes, `always` among them."""
        plan = Plan._of_some_passes(captured, without, always, keeps_wide)
        for fewer, more in _OTHER_PASSES:
            if any(plan._shortcomings[:2]) and not {*fewer, *more} & {*without}:
                # there is a plan already
                with contextlib.suppress(Refused):
                    other = Plan._of_some_passes(captured, (*without, *fewer), (*always, *more), keeps_wide)
                    plan = min(plan, other, key=lambda plan: plan._shortcomings)
        return plan

    @staticmethod
    def _of_some_passes(captured: Captured, without: Collection[str], more: Collection[str], keeps_wide: bool) -> Plan:
        try:
            return Plan._of_passes(captured, without, more, keeps_wide)
        except Refused:
            with contextlib.suppress(Refused):
                return Plan._of_passes(captured, without, more, keeps_wide, normalised_kept)
            raise

    @staticmethod
    def _that_keeps_shared(captured: Captured, without: Collection[str], more: Collection[str]) -> Plan | None:
        """The plan that keeps what networks give to several reductions, if there is any."""
        with contextlib.suppress(Refused):
            return Plan._of_passes(captured, without, more, True, shared_networks_kept)
        return None

    @staticmethod
    def _of_passes(
        captured: Captured,
        without: Collection[str],
        more: Collection[str],
        keeps_wide: bool,
        keep: Callable[[Node], Node] | None = None,
    ) -> Plan:
        output = with_rows_of_edges(optimised(captured.output, without, more), captured.output)
        output = extremes_as_sums(output, with_gradients=GRADIENTS_OF_ONE not in without)
        output = taken_together_kept(reduced_by_walks(output), keeps_wide)
        output = output if keep is None else keep(output)
        output, walks = forms_of_results(output, keeps_wide, RETURNED_WEIGHTS not in without)
        walks = with_directions(with_shared_products(walks))
        if not walks:
            raise Refused('it reduces nothing')
        steps = steps_of(output, walks)
        _check_normalised_once(walks, steps, captured.output)
        check_taken_once(steps, captured.output)
        for node in steps:
            if node.residency == EDGE and not is_features(node) and node.op != 'columns' and id(node) not in walks:
                raise Refused(f'{node.op} of values of edges')
            if node.op in REDUCTIONS and id(node) not in walks:
                raise Refused('a reduction within what is kept')
        passes = tuple(without), tuple(more)
        operands = [operand for walk in walks.values() for operand in operands_of(walk)]
        guarded = guarded_sides(steps, operands)
        return Plan(output, walks, tuple(steps), captured, guarded, *passes, keeps_wide)

    def _is_much_less_than(self, other: Plan) -> bool:
        """Whether it computes so much less on edges that values in memory pay, and none by a slower form."""
        is_less = _MUCH_LESS * self.cost.operations[EDGE] < other.cost.operations[EDGE]
        return is_less and self.chunked_reductions <= other.chunked_reductions

    @property
    def chunked_reductions(self) -> int:
        """How many reductions run by operators on chunks of edges, the slowest form."""
        return chunked_in(self.walks)

    @property
    def _chunked_dropouts(self) -> int:
        """How many values of edges are computed by operators on chunks because they drop some."""
        return sum(isinstance(form, Chunked) and form.draws for form in self.walks.values())

    @property
    def _shortcomings(self) -> tuple[int, int, int]:
        """What makes one plan worse than another: slow reductions, wide values in memory, and walks."""
        reduced = [node.width for node in self.steps if node.op == 'reduce' and id(node) in self.walks]
        returned = {id(node) for node in results_of(self.output)}
        in_memory = [n for n in self.steps if n.residency == EDGE and id(n) in self.walks and id(n) not in returned]
        wide = [node.width for node in in_memory if 2 * node.width > max(reduced, default=0)]
        by_terms = sum(isinstance(form, Walk) and form.is_by_terms for form in self.walks.values())
        return self.chunked_reductions + by_terms, sum(wide), len(self.walks)

    def of_so_many(self, num_edges: int) -> Plan:
        """The plan for so many edges: one that keeps no wide values of them, where these would take much memory."""
        plan = self if torch.is_grad_enabled() else self._without_gradients_of_one
        if any(map(_is_by_batch, plan._computed_again)):
            for kept, is_too_much in ((plan._returned_kept, are_too_many_to_keep), (plan._all_kept, are_many_to_keep)):
                if kept is not plan and not is_too_much(num_edges, kept._normalised_row_bytes):
                    return kept
        return plan._sparing if are_too_many_to_keep(num_edges, plan._kept_row_bytes) else plan

    @functools.cached_property
    def _all_kept(self) -> Plan:
        """The same, where what is normalised over edges is in memory: a network would compute it again for moments."""
        return self._that_keeps(normalised_kept)

    @functools.cached_property
    def _returned_kept(self) -> Plan:
        """The same of what values of edges are computed of that are returned, and in memory anyway."""
        return self._that_keeps(returned_normalised_kept)

    def _that_keeps(self, keep: Callable[[Node], Node]) -> Plan:
        with contextlib.suppress(Refused):
            other = Plan._of_passes(self.captured, self.without, self.more, self.keeps_wide, keep)
            return min(other, self, key=lambda plan: plan.chunked_reductions)
        return self

    @functools.cached_property
    def _normalised_row_bytes(self) -> int:
        """Of what an edge's normalisations read and give, if that is in memory."""
        norms = [node for node in self.steps if node.op == 'batch_norm' and id(node) not in self.walks]
        return sum(2 * node.width * node.dtype.itemsize for node in norms if node.residency == EDGE)

    @functools.cached_property
    def has_ties(self) -> bool:
        return any(map(is_of_one, in_order(self.captured.output)))

    @functools.cached_property
    def _without_gradients_of_one(self) -> Plan:
        """The same, where nothing is differentiated: extremes of one edge are extremes then."""
        if GRADIENTS_OF_ONE in self.without or not self.has_ties:
            return self
        return Plan.of(self.captured, (*self.without, GRADIENTS_OF_ONE))

    @functools.cached_property
    def _kept_row_bytes(self) -> int:
        return self._shortcomings[1] * max(node.dtype.itemsize for node in results_of(self.output))

    @functools.cached_property
    def _sparing(self) -> Plan:
        with contextlib.suppress(Refused):
            return Plan.of(self.captured, {GRADIENTS_OF_ONE} & {*self.without}, keeps_wide=False)
        return self

    def of_width(self, channels: int) -> Plan | None:
        """The plan for features of another width; None where what it computes of a channel depends on others."""
        if channels not in self._of_widths:
            walk = self.walks.get(id(self.output))
            is_known = len(self.walks) == 1 and isinstance(walk, Walk) and walk.takes_any_width
            walks = {id(self.output): dataclasses.replace(walk, channels=channels)} if is_known else {}
            self._of_widths[channels] = dataclasses.replace(self, walks=walks) if is_known else None
        return self._of_widths[channels]

    @functools.cached_property
    def _of_widths(self) -> dict[int, Plan | None]:
        return {}

    @functools.cached_property
    def fewest_edges(self) -> int:
        """From how many edges on it takes less than PyG's operators on edges."""
        given = self.output, self.steps, self.walks, self.has_ties, self.num_normalised
        return fewest_edges_of(self.captured, *given)

    @functools.cached_property
    def are_sums(self) -> bool:
        """Whether all that it does on edges are sums, perhaps weighed by a number for each edge."""
        return are_sums(self.walks)

    @functools.cached_property
    def num_normalised(self) -> int:
        """How many normalisations over edges the network has that has most, or are of values in memory."""
        in_memory = [node for node in self.steps if node.op == 'batch_norm' and id(node) not in self.walks]
        networks = [len(form.batch_norms) for form in self.walks.values() if isinstance(form, Network)]
        return max([sum(node.residency == EDGE for node in in_memory), *networks])

    @functools.cached_property
    def _computed_again(self) -> list[BatchNorm1d]:
        """Normalisations within networks, which compute what is normalised again for its moments."""
        return [module for form in self.walks.values() if isinstance(form, Network) for module in form.batch_norms]

    @functools.cached_property
    def why_few(self) -> str:
        """Why PyG's operators run along fewer edges than `fewest_edges`."""
        forms = [form for form in self.walks.values() if isinstance(form, Chunked) and form.reduction is not None]
        without = f'{why_no_kernel(forms[0].reduction)} has no kernel, and there are ' if forms else ''
        return f'{without}{SO_FEW_EDGES}'

    @functools.cached_property
    def cost(self) -> Cost:
        """What it computes and keeps."""
        return cost_of(self.output, self.steps, self.walks)

    def why_not(self, edges: Edges, given: Mapping[str, Tensor]) -> str | None:
        """The reason, if any, for which edges like these, or parameters as they are, have no fused form."""
        if self.captured.ends_early and not edges.graph().has_last_target:
            return 'a reduction without a size, along edges of which none leads to the last target'
        if self.captured.has_one_set and edges.num_sources != edges.num_targets:
            return 'degrees that are read at the other ends, which are other nodes'
        if any(int(_given(size, given)) <= edges.graph().last_target for size in self.captured.sizes):
            return 'a reduction to fewer rows than the targets of its edges'
        reason = why_no_types(self._types, edges, given)
        if reason is not None:
            return reason
        plan = self.of_so_many(edges.num_edges)
        for key, walk in plan.walks.items():
            if not isinstance(walk, Walk):
                edges_of_walk = edges.of_set(plan._sets.get(key, 0))
                floating = (tensor.dtype for tensor in given.values() if tensor.is_floating_point())
                dtype = next(floating, torch.float32)
                reason = walk.why_not(edges_of_walk, dtype)
                if reason is None and torch.is_grad_enabled():
                    reason = self._why_edges_tie(walk, edges_of_walk, given, dtype)
                if reason is not None:
                    return reason
        return None

    @functools.cached_property
    def _sets(self) -> dict[int, int]:
        """Of which set of edges each walk is, by the key of `walks`."""
        return {id(node): set_of_edges(node) for node in self.steps if id(node) in self.walks}

    @functools.cached_property
    def _types(self) -> tuple[tuple[Node, int], ...]:
        return types_in(self.steps)

    def _why_edges_tie(self, form: Form, edges: Edges, given: Mapping[str, Tensor], dtype: torch.dtype) -> str | None:
        if not isinstance(form, Network) or form.reduce != 'max' or form.is_at_once(edges, dtype):
            return None
        found: dict[int, Any] = {}
        with torch.no_grad():
            for node in in_order(form.weights):
                found[id(node)] = of_input(node, given) if node.op == 'input' else _computed(node, found)
        return form.why_edges_tie([found[id(weight)] for weight in form.weights])

    @property
    def is_much_work(self) -> bool:
        """Whether an edge is much work, by a softmax or a network."""
        return any(not isinstance(form, Walk) or form.program.softmax for form in self.walks.values())

    def run(self, edges: Edges, given: Mapping[str, Tensor], note: Note | None = None) -> Any:
        """The results of a call, with a row for each target or each edge.

        Args:
            edges: The edges.
            given: The tensors of the call by name.
            note: The layer's, where the caller knows what `pygfuse.ops.aggregation.aggregate_known` wants known.
        """
        return self.of_so_many(edges.num_edges)._written(edges, given, note)

    @functools.cached_property
    def _written(self) -> Run:
        return written(self.steps, self.walks, self.output, self.guarded, self.captured)


def _is_by_batch(norm: BatchNorm1d) -> bool:
    """Whether a normalisation is by the moments of a call's edges."""
    return norm.training or norm.running_mean is None


def _given(size: Node | int, given: Mapping[str, Tensor]) -> Tensor | int:
    """A number, which a call or the layer may hold."""
    return of_input(size, given) if isinstance(size, Node) else size


def _computed(node: Node, found: Mapping[int, Any]) -> Any:
    """What torch computes of values that are there."""
    return OPERATIONS[node.op].run(*mapped(node.args, lambda parent: found[id(parent)]), **node.attributes)


def _check_normalised_once(walks: Mapping[int, Form], steps: Sequence[Node], captured: Node) -> None:
    """Raises a Refused if a normalisation would see values, and move its statistics, more often than it was called."""
    networks = {id(form): form for form in walks.values() if isinstance(form, Network)}.values()
    moved = [id(module) for network in networks for module in network.batch_norms]
    moved += [id(node.attributes['module']) for node in steps if has_statistics(node) and id(node) not in walks]
    called = [id(node.attributes['module']) for node in in_order(captured) if has_statistics(node)]
    if any(moved.count(module) > max(called.count(module), 1) for module in moved):
        raise Refused('a batch normalisation that is taken twice')
