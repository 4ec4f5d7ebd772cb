"""What runs in place of ``propagate``: operators of torch on nodes, and walks over the edges."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.note import Note
from pygfuse.compiler.capture import Captured
from pygfuse.compiler.chunked import Chunked
from pygfuse.compiler.emission import Factors
from pygfuse.compiler.forms import Form, forms_of, reduced_and_returned, values_of
from pygfuse.compiler.ir import EDGE, Node, in_order, mapped, results_of
from pygfuse.compiler.lowering import Walk, softmaxes_in
from pygfuse.compiler.network import Network
from pygfuse.compiler.operations import OPERATIONS
from pygfuse.compiler.passes import optimised
from pygfuse.compiler.passes.after_sum import linear_maps_after_sums
from pygfuse.compiler.passes.softmax import softmax_taken_apart
from pygfuse.compiler.passes.subexpressions import share_subexpressions, shared
from pygfuse.compiler.passes.sums_apart import sums_taken_apart
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.untouched import guarded_sides
from pygfuse.compiler.written import Run, summed, written
from pygfuse.mapping.few_edges import fewest_of
from pygfuse.ops import Edges
from pygfuse.ops.few_edges import SUMS

# passes that are left out, and added, where a reduction has neither a program nor a network: a map that is taken after
# a sum leaves its bias behind, which may ask for the same values a second time
_AFTER_SUMS = (linear_maps_after_sums.__name__,)
_OTHER_PASSES = ((_AFTER_SUMS, ()), ((), (sums_taken_apart.__name__,)))
# of so many operators on nodes, PyG's, on edges that are few, are as many and take less
_MANY_OPERATORS = 8
# a message's own one or two, and its sum
_FEW_OPERATORS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """A captured layer, lowered.

    Attributes:
        output: The result, or several.
        walks: The walk of each reduction and of each result of edges, by the identity of its value.
        steps: All values that have to be computed, in order.
        captured: What was captured.
        guarded: Residencies whose nodes without edges must not be computed (`pygfuse.compiler.untouched`).
        without, more: The passes that were left out, and those that were added, as of `pygfuse.compiler.passes.stages`.
    """

    output: Node
    walks: dict[int, Form]
    steps: tuple[Node, ...]
    captured: Captured
    guarded: frozenset[str]
    without: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    @staticmethod
    def of(captured: Captured, without: Collection[str] = ()) -> Plan:
        """Lowers what was captured.

        Args:
            captured: A layer.
            without: Names of passes to leave out.

        Raises:
            Refused: If something has no fused form.
        """
        plan = Plan._of_passes(captured, without)
        for fewer, more in _OTHER_PASSES:
            if plan.chunked_reductions and not {*fewer, *more} & {*without}:
                # there is a plan already
                with contextlib.suppress(Refused):
                    other = Plan._of_passes(captured, (*without, *fewer), more)
                    plan = min(plan, other, key=lambda plan: (plan.chunked_reductions, len(plan.walks)))
        return plan

    @staticmethod
    def _of_passes(captured: Captured, without: Collection[str], more: Collection[str] = ()) -> Plan:
        output = optimised(captured.output, without, more)
        output, walks = _lowered(output)
        walks = _with_shared_products(walks)
        if not walks:
            raise Refused('it reduces nothing')
        _check_normalised_once(walks)
        steps = _steps(output, walks)
        for node in steps:
            if node.residency == EDGE and node.op not in ('input', 'columns') and id(node) not in walks:
                raise Refused(f'{node.op} of values of edges')
        return Plan(output, walks, tuple(steps), captured, guarded_sides(steps), tuple(without), tuple(more))

    @property
    def chunked_reductions(self) -> int:
        """How many reductions run by operators on chunks of edges, the slowest form."""
        return sum(isinstance(form, Chunked) and form.reduction is not None for form in self.walks.values())

    @functools.cached_property
    def fewest_edges(self) -> int:
        """From how many edges on it takes less than PyG's operators on edges."""
        operators = sum(node.op != 'input' and id(node) not in self.walks for node in self.steps)
        is_long = operators > _MANY_OPERATORS or not all(isinstance(form, Walk) for form in self.walks.values())
        networks = [form for form in self.walks.values() if isinstance(form, Network)]
        return fewest_of(is_long, self._is_short, any(form.batch_norms for form in networks))

    @property
    def _is_short(self) -> bool:
        """Whether what was captured are one or two operators and a sum, and this is a program."""
        forms = self.walks.values()
        if not all(isinstance(form, Walk) and form.reduce in SUMS and summed(form) is None for form in forms):
            return False
        captured = in_order(self.captured.output)
        return sum(node.op in OPERATIONS and not OPERATIONS[node.op].selects for node in captured) <= _FEW_OPERATORS

    def why_not(self, edges: Edges, given: Mapping[str, Tensor]) -> str | None:
        """The reason, if any, for which edges like these, or parameters as they are, have no fused form."""
        for walk in self.walks.values():
            if not isinstance(walk, Walk):
                floating = (tensor.dtype for tensor in given.values() if tensor.is_floating_point())
                dtype = next(floating, torch.float32)
                reason = walk.why_not(edges, dtype)
                if reason is None and torch.is_grad_enabled():
                    reason = self._why_edges_tie(walk, edges, given, dtype)
                if reason is not None:
                    return reason
        return None

    def _why_edges_tie(
        self, network: Network | Chunked, edges: Edges, given: Mapping[str, Tensor], dtype: torch.dtype
    ) -> str | None:
        if isinstance(network, Chunked) or network.reduce != 'max' or network.is_at_once(edges, dtype):
            return None
        found: dict[int, Any] = {}
        with torch.no_grad():
            for node in in_order(network.weights):
                found[id(node)] = _of_input(node, given) if node.op == 'input' else _computed(node, found)
        return network.why_edges_tie([found[id(weight)] for weight in network.weights])

    @property
    def returns_edges(self) -> bool:
        """Whether a result has a row for each edge."""
        return any(node.residency == EDGE for node in results_of(self.output))

    def run(self, edges: Edges, given: Mapping[str, Tensor], note: Note | None = None) -> Any:
        """The results of a call, with a row for each target or each edge.

        Args:
            edges: The edges.
            given: The tensors of the call by name.
            note: The layer's, where the caller knows what `pygfuse.ops.aggregation.aggregate_known` wants known.
        """
        return self._written(edges, given, note)

    @functools.cached_property
    def _written(self) -> Run:
        return written(self.steps, self.walks, self.output, self.guarded)


def _of_input(node: Node, given: Mapping[str, Tensor]) -> Tensor:
    """What a call or the layer holds."""
    source = node.attributes['source']
    return given[source] if isinstance(source, str) else getattr(*source)


def _computed(node: Node, found: Mapping[int, Any]) -> Any:
    """What torch computes of values that are there."""
    return OPERATIONS[node.op].run(*mapped(node.args, lambda parent: found[id(parent)]), **node.attributes)


def _lowered(output: Node) -> tuple[Node, dict[int, Form]]:
    """The value and the walk of each of its reductions; a softmax that no program has is taken apart."""
    while True:
        walks: dict[int, Form] = {}
        returned = {id(node) for node in results_of(output) if node.residency == EDGE and node.op != 'input'}
        for node in in_order(output):
            if id(node) in returned and id(node) not in walks:
                walks |= values_of(node)
            if node.op != 'reduce':
                continue
            try:
                walks |= reduced_and_returned(node) if id(node.args[0]) in returned else forms_of(node)
            except Refused:
                found = softmaxes_in(node.args[0])
                if not found:
                    raise
                output = share_subexpressions(softmax_taken_apart(output, found))
                break
        else:
            return output, walks


def _with_shared_products(walks: Mapping[int, Form]) -> dict[int, Form]:
    """The same walks; operands that are the same features times the same weight are the same values in all of them."""
    found = [f for walk in walks.values() if isinstance(walk, Walk) for f in walk.operands.values()]
    found = [factors for factors in found if isinstance(factors, Factors)]
    parts = iter(shared([part for factors in found for part in (factors.features, factors.weight)]))
    known = {id(factors): Factors(next(parts), next(parts)) for factors in found}
    return {
        key: dataclasses.replace(walk, operands={name: known.get(id(o), o) for name, o in walk.operands.items()})
        if isinstance(walk, Walk)
        else walk
        for key, walk in walks.items()
    }


def _check_normalised_once(walks: Mapping[int, Form]) -> None:
    """Raises a Refused if a batch normalisation would see values, and move its statistics, twice."""
    networks = {id(form): form for form in walks.values() if isinstance(form, Network)}.values()
    modules = [id(module) for network in networks for module in network.batch_norms]
    if len(set(modules)) < len(modules):
        raise Refused('a batch normalisation that is taken twice')


def _steps(output: Node, walks: Mapping[int, Form]) -> list[Node]:
    """The values to compute in order: of a reduction's, its operands alone."""
    done: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) in done:
            return
        walk = walks.get(id(node))
        for parent in node.parents() if walk is None else _operands(walk):
            visit(parent)
        done[id(node)] = node

    visit(output)
    return list(done.values())


def _operands(walk: Form) -> list[Node]:
    found = []
    for operand in walk.operands.values():
        found += [operand.features, operand.weight] if isinstance(operand, Factors) else [operand]
    return found
