"""Calls of modules that gather along edges themselves while ``torch.compile`` traces them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

from pygfuse.compiler import Given, Refused
from pygfuse.compiler.modules import Returned
from pygfuse.conv import _fallback as fallback
from pygfuse.conv._known_arguments import KnownArguments
from pygfuse.conv._module_calls import ModuleCall, as_one, call_of, names_of, names_of_edges, nums_nodes
from pygfuse.conv._traced_calls import NOT_TRACED, Described, TracedCall, described, example_of, known_as, run_known
from pygfuse.graph.adjacency import FLOWS


@dataclasses.dataclass(frozen=True)
class TracedModule:
    """Calls of a kind.

    Attributes:
        call: What computes the results.
        returned: What the module returns of these.
        kind: The class of several things that it returns; None of one.
    """

    call: TracedCall
    returned: tuple[Returned, ...]
    kind: type | None

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
        parts = [one.of(found[0], given) for one in self.returned]
        return (parts[0] if self.kind is None else self.kind(parts)), {}


class ModuleTracedByTorch:
    """A mixin for modules that are captured whole."""

    def run_traced(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple[Any] | str:
        """What a call returns, in a tuple, or why torch traces the module's own code."""
        arguments = self.arguments_of_forward()
        # an export is for other processes, which know no program of the module
        if fallback.why_not_here() is not None or torch.compiler.is_exporting() or len(args) > len(arguments):
            return NOT_TRACED
        given = {**dict(zip(arguments[: len(args)], args, strict=True)), **kwargs}
        edges = names_of_edges(given)
        if not edges:
            return NOT_TRACED
        edge_index = as_one(*[given[name] for name in edges])
        others = {name: value for name, value in given.items() if name not in edges}
        tensors = {name: value for name, value in others.items() if isinstance(value, Tensor) and value.dim() > 0}
        counts = nums_nodes(list(tensors.values()), edge_index.shape[1])
        if not counts:
            return NOT_TRACED
        nodes = counts[0]
        of_nodes = tuple([name for name, value in tensors.items() if guard_or_false(value.shape[0] == nodes)])
        numbers = tuple([name for name, value in others.items() if type(value) is int and value == nodes])
        described_as = {name: value for name, value in others.items() if name not in numbers}
        of_others = tuple([name for name in described_as if name not in of_nodes])
        call = described(edge_index, None, described_as, of_nodes, of_others)
        if call is None:
            return NOT_TRACED
        known = self.traced_call(call, edges, of_nodes[0], numbers, str(edge_index.device))
        found = run_known(known, self, edge_index, None, given)
        return found if isinstance(found, str) else (found[0],)

    @torch.compiler.assume_constant_result
    def arguments_of_forward(self) -> tuple[str, ...]:
        """The names of what ``forward`` takes."""
        return names_of(self.plain.forward)

    @torch.compiler.assume_constant_result
    def traced_call(
        self, call: Described, edges: tuple[str, ...], of_nodes: str, numbers: tuple[str, ...], device: str
    ) -> str:
        """The name of what is known of calls of a kind, or why torch traces the module's own code.

        Args:
            call: A call without its edges, as of `pygfuse.conv._traced_calls.described`.
            edges: The name of the edges, or those of their rows.
            of_nodes: The name of a tensor of nodes.
            numbers: The names of numbers of nodes.
            device: Where its tensors are.
        """
        edge_index, _, given = example_of(call, device)
        try:
            counts = dict.fromkeys(numbers, given[of_nodes].shape[0])
            rows = [edge_index] if len(edges) == 1 else edge_index
            example = call_of(self.plain, (), {**given, **dict(zip(edges, rows, strict=True)), **counts})
            plan = self.plan_of_call(example)
            if isinstance(plan, str):
                return plan
            captured = plan.captured
            flow = FLOWS[1 - captured.target_row]
            return known_as(
                TracedModule(TracedCall.of(plan, self, _arguments_of(example), flow), captured.returned, captured.kind)
            )
        except (Refused, ValueError) as refusal:
            return str(refusal)


def _arguments_of(call: ModuleCall) -> KnownArguments:
    """Where the tensors of a call are."""
    given = {name: item for name, item in call.given.items() if isinstance(item, Given)}
    of_nodes = [name for name, item in given.items() if item.is_of_all]
    return KnownArguments(
        of_nodes=tuple([(name, name, None) for name in of_nodes]),
        of_edges=tuple([name for name, item in given.items() if item.residency == 'edge']),
        shared=tuple([(name, item.value.shape) for name, item in given.items() if item.residency == 'shared']),
        counted=tuple([(name, None, side) for name in of_nodes[:1] for side in (0, 1)]),
        of_update=(),
        num_stacked=None,
    )
