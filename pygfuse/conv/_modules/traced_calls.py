"""Calls of modules that gather along edges themselves while ``torch.compile`` traces them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false, has_static_value
from torch_geometric.data import Data

from pygfuse.compiler import Given, Plan, Refused
from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.modules.captured_module import CapturedModule
from pygfuse.compiler.plan.by_type import types_in
from pygfuse.compiler.plan.traced import places_of
from pygfuse.compiler.plan.traced_edges import check_traced_shapes, traced_edges
from pygfuse.compiler.symbols.places import OTHER_ENDS
from pygfuse.conv._compiled.known_arguments import KnownArguments
from pygfuse.conv._compiled.traced_calls import (
    Described,
    TracedCall,
    described,
    example_of,
    is_known,
    known_as,
    run_known,
    untraced_as,
)
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.untraced import NOT_TRACED, UNTRACED, may_break
from pygfuse.conv._modules.calls import ONE_SET, TWO_SETS, ModuleCall, as_one, call_of, nums_nodes
from pygfuse.conv._modules.edges_by_name import are_columns, are_edges, are_other_edges, names_of, names_of_edges
from pygfuse.conv._modules.held_edges import held_edges
from pygfuse.conv._modules.matrix_arguments import is_matrix, num_entries
from pygfuse.graph.adjacency import FLOWS
from pygfuse.mapping.few_edges import fewest_compiled

# edges of an example of a call
_FEW_EDGES = 1009
# names, and of which set of nodes each is
OfNodes = tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True)
class TracedModule:
    """Calls of a kind.

    Attributes:
        call: What computes the results.
        returned: What the module returns of these.
    """

    call: TracedCall
    returned: Any

    def run(self, module: Any, edge_index: Tensor, size: None, given: Mapping[str, Any]) -> tuple[Any, dict] | str:
        """What a call returns, in first place, or why torch traces the module's own code.

        Args:
            module: The module.
            edge_index: The edges.
            size: None.
            given: The arguments by name, the edges among them.
        """
        found = self.call.run(module, edge_index, None, given)
        if isinstance(found, str):
            return found
        return rebuilt(self.returned, lambda one: one.of(found[0], given)), {}


class ModuleTracedByTorch:
    """A mixin for modules that are captured whole."""

    def run_traced(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[Any] | str:
        """What a call returns, in a tuple, or why torch traces the module's own code."""
        arguments = self.arguments_of_forward()
        # an export is for other processes, which know no program of the module
        if fallback.why_not_here() is not None or torch.compiler.is_exporting() or len(args) > len(arguments):
            return NOT_TRACED
        given = {**dict(zip(arguments[: len(args)], args, strict=True)), **kwargs}
        if any(is_matrix(item) for item in given.values()):
            return UNTRACED if may_break() else NOT_TRACED
        edges = names_of_edges(given)
        if not edges:
            within = _edges_within(given)
            may_hold = within is None and self.num_edges_held() >= fewest_compiled(False)
            return UNTRACED if may_hold and may_break() else _apart(NOT_TRACED, within)
        edge_index = as_one(*[given[name] for name in edges])
        if are_columns(given[edges[0]]):
            return _apart(NOT_TRACED, edge_index)
        others = {name: value for name, value in given.items() if name not in edges}
        if any(are_other_edges(name, value) for name, value in others.items()):
            return _apart(NOT_TRACED, edge_index)
        tensors = {name: value for name, value in others.items() if isinstance(value, Tensor) and value.dim() > 0}
        counts = nums_nodes(list(tensors.values()), edge_index.shape[1])
        known = self._known(edges, edge_index, others, tensors, counts[:1])
        if not is_known(known) and len(counts) > 1:
            of_two = self._known(edges, edge_index, others, tensors, counts[:2])
            known = known if of_two in (OTHER_ENDS, NOT_TRACED) else of_two
        if not is_known(known) and self._has_copies_in(edges, edge_index, others):
            return _apart(NOT_TRACED, edge_index)
        found = run_known(known, self, edge_index, None, given)
        return _apart(found, edge_index) if isinstance(found, str) else (found[0],)

    def _known(
        self, edges: tuple[str, ...], edge_index: Tensor, others: dict[str, Any], tensors: dict[str, Any], counts: list
    ) -> str:
        """`traced_call` of a call whose edges lead between so many nodes; why torch traces the module's own code."""
        if not counts:
            return NOT_TRACED
        of_nodes, numbers = _of_counts(_rows_of(tensors), counts), _of_counts(_numbers_of(others), counts)
        said = {name: value for name, value in others.items() if name not in dict(numbers)}
        of_others = tuple([name for name in said if name not in dict(of_nodes)])
        call = described(edge_index, None, said, tuple(dict(of_nodes)), of_others)
        return NOT_TRACED if call is None else self.traced_call(call, edges, of_nodes, numbers, str(edge_index.device))

    @torch.compiler.assume_constant_result
    def arguments_of_forward(self) -> tuple[str, ...]:
        """The names of what ``forward`` takes."""
        return names_of(self.plain.forward)

    def _has_copies_in(self, edges: tuple[str, ...], edge_index: Tensor, others: Mapping[str, Any]) -> bool:
        """Whether a call has several copies of its nodes: of them a plan is run between two traces."""
        tensors = [(name, one) for name, one in others.items() if isinstance(one, Tensor)]
        if not any(one.dim() > 2 for _, one in tensors):
            return False
        sizes = [edge_index.shape[1], *[size for _, one in tensors for size in one.shape]]
        if self.has_met_copies() or not all(has_static_value(size) for size in sizes):
            return self.has_met_copies()
        shapes = tuple([(name, tuple(one.shape), one.dtype) for name, one in tensors])
        simple = tuple([(name, one) for name, one in others.items() if isinstance(one, (str, float, int, type(None)))])
        return self.takes_copies(edges, edge_index.shape[1], edge_index.dtype, shapes, simple)

    @torch.compiler.assume_constant_result
    def num_edges_held(self) -> int:
        """The number of edges, or entries of sparse matrices, that the module holds."""
        return sum(num_entries(item) for _, item in held_edges(self))

    @torch.compiler.assume_constant_result
    def has_met_copies(self) -> bool:
        """Whether the call before had several copies of its nodes."""
        return self._has_copies

    @torch.compiler.assume_constant_result
    def takes_copies(
        self,
        edges: tuple[str, ...],
        num_edges: int,
        dtype: torch.dtype,
        tensors: tuple[tuple[str, tuple[int, ...], torch.dtype], ...],
        others: tuple[tuple[str, Any], ...],
    ) -> bool:
        """Whether there is a plan for a call of several copies of nodes.

        Args:
            edges: The name of the edges, or those of their rows.
            num_edges: How many they are.
            dtype: Their type.
            tensors: The names, shapes and types of other tensors.
            others: What else is given, by name.
        """
        few = {num_edges: _FEW_EDGES}
        given = {
            name: torch.zeros((), dtype=kind).expand([few.get(size, size) for size in shape])
            for name, shape, kind in tensors
        }
        edge_index = torch.zeros(2, _FEW_EDGES, dtype=dtype)
        rows = [edge_index] if len(edges) == 1 else edge_index
        given |= {**dict(zip(edges, rows, strict=True)), **dict(others)}
        with contextlib.suppress(Refused, ValueError):
            return isinstance(self.plan_of_call(call_of(self.plain, (), given, has_copies=True)), Plan)
        return False

    @torch.compiler.assume_constant_result
    def traced_call(
        self, call: Described, edges: tuple[str, ...], of_nodes: OfNodes, numbers: OfNodes, device: str
    ) -> str:
        """The name of what is known of calls of a kind, or why torch traces the module's own code.

        Args:
            call: A call without its edges, as of `pygfuse.conv._compiled.traced_calls.described`.
            edges: The name of the edges, or those of their rows.
            of_nodes: The names of tensors of nodes, and of which set each is.
            numbers: The same of numbers of nodes.
            device: Where its tensors are.
        """
        edge_index, _, given = example_of(call, device)
        try:
            sizes = {place: given[name].shape[0] for name, place in of_nodes}
            counts = {name: sizes[place] for name, place in numbers}
            rows = [edge_index] if len(edges) == 1 else edge_index
            arguments = {**given, **dict(zip(edges, rows, strict=True)), **counts}
            example, plan = self._plan_of_example(arguments, len(sizes) > 1)
        except (Refused, ValueError) as refusal:
            return str(refusal)
        if isinstance(plan, str):
            # torch takes no constant of another class
            return str(plan)
        try:
            return known_as(TracedModule(self._traced(plan, example), plan.captured.returned))
        except Refused as refusal:
            return untraced_as(plan, str(refusal))

    def _traced(self, plan: Plan, example: ModuleCall) -> TracedCall:
        """Calls like an example.

        Raises:
            Refused: If torch cannot trace what computes their results.
        """
        captured: CapturedModule = plan.captured
        remade, target_row, edges = captured.remade_by, captured.target_row, None
        if captured.guards.numbers:
            raise Refused('torch compiles no numbers that values tell')
        if captured.calls_layers:
            raise Refused('torch compiles no module that gathers itself and calls layers')
        if types_in(plan.steps):
            raise Refused('torch compiles no products by matrices of types')
        if captured.written:
            raise Refused('torch compiles no module that writes into its arguments')
        if remade is not None:
            check_traced_shapes(remade, example.run(target_row))
            edges = traced_edges(remade, places_of(self))
        return TracedCall.of(plan, self, _arguments_of(example, target_row), FLOWS[1 - target_row], edges)

    def _plan_of_example(self, arguments: dict[str, Any], of_two_sets: bool) -> tuple[ModuleCall, Any]:
        """A call and its plan, by the first sets of nodes between which its edges may lead; or why there is none."""
        reasons = []
        for sets in TWO_SETS if of_two_sets else (ONE_SET,):
            example = call_of(self.plain, (), arguments, sets=sets)
            plan = self.plan_of_call(example)
            if not isinstance(plan, str):
                return example, plan
            reasons.append(plan)
        return example, next((reason for reason in reasons if reason != OTHER_ENDS), OTHER_ENDS)


def _apart(reason: str, edge_index: Tensor | None) -> str:
    """How a call runs of which torch is told nothing: between two traces, if there are so many edges that it pays."""
    is_few = edge_index is None or fallback.are_few_compiled(edge_index, fewest_compiled(False))
    return UNTRACED if reason == NOT_TRACED and not is_few and may_break() else reason


def _edges_within(given: Mapping[str, Any]) -> Tensor | None:
    """The edges that an argument holds."""
    for item in given.values():
        if isinstance(item, Data) or type(item) is dict:
            found = getattr(item, 'edge_index', None) if isinstance(item, Data) else item.get('edge_index')
        else:
            found = next(filter(are_edges, item), None) if type(item) in (tuple, list) else None
        if are_edges(found):
            return as_one(found)
    return None


def _rows_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: value.shape[0] for name, value in tensors.items()}


def _numbers_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if isinstance(value, int) and type(value) is not bool}


def _of_counts(numbers: Mapping[str, Any], counts: list) -> OfNodes:
    """Which of the numbers are numbers of nodes, and of which of them."""
    found = []
    for name, number in numbers.items():
        for place, count in enumerate(counts):
            if guard_or_false(count == number):
                found.append((name, place))
    return tuple(found)


def _arguments_of(call: ModuleCall, target_row: int) -> KnownArguments:
    """Where the tensors of a call are."""
    given = {name: item for name, item in call.given.items() if isinstance(item, Given)}
    of_nodes = [name for name, item in given.items() if item.is_of_all]
    # sources first
    first = {side: name for name in reversed(of_nodes) for side in _sides(given[name].of_row, target_row)}
    if len(first) < 2:
        raise Refused('nothing tells the number of nodes')
    return KnownArguments(
        of_nodes=tuple([(name, name, None) for name in of_nodes]),
        of_edges=tuple([name for name, item in given.items() if item.residency == 'edge']),
        shared=tuple([(name, item.value.shape) for name, item in given.items() if item.residency == 'shared']),
        counted=tuple([(name, None, side) for side, name in first.items()]),
        of_update=(),
        num_stacked=None,
    )


def _sides(of_row: int | None, target_row: int) -> tuple[int, ...]:
    """Whether nodes are the sources of edges (0), their targets (1), or both."""
    return (0, 1) if of_row is None else (int(of_row == target_row),)
