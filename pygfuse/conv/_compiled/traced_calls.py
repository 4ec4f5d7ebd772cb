"""Calls of compiled layers while ``torch.compile`` traces them.

A message is captured by Python that torch cannot trace. So torch is told what a call is like (names, types, widths,
which tensors have a row for each edge), and the layer makes a small example of such a call, and its plan, whose lines
torch traces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false, has_static_value
from torch_geometric import EdgeIndex

from pygfuse.compiler import Plan, Refused
from pygfuse.compiler.plan.traced import Traced
from pygfuse.compiler.plan.traced_edges import Lines
from pygfuse.conv._compiled.call import SIMPLE, collected, names_read
from pygfuse.conv._compiled.known_arguments import KnownArguments
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import is_edge_index
from pygfuse.conv._layer.stacks import one_after_the_other
from pygfuse.conv._layer.untraced import NOT_TRACED, UNTRACED, may_break
from pygfuse.graph.adjacency import FLOWS
from pygfuse.mapping.few_edges import SO_FEW_EDGES, fewest_compiled
from pygfuse.ops import Edges

# a call in constants: the types of the edges, and arguments by name
Described = tuple[tuple[str, Any], ...]

# rows of an example's tensors
_EDGES = 1009
_NODES = (503, 509, 521, 523)


@dataclasses.dataclass(frozen=True)
class TracedCall:
    """Calls of a kind.

    Attributes:
        traced: What computes the results.
        arguments: Where its tensors are.
        fewest_edges: Along fewer, what torch makes of PyG's operators takes less.
        flow: PyG's flow.
        edges: What is made of the edges; None if they are read as they are.
    """

    traced: Traced
    arguments: KnownArguments
    fewest_edges: int
    flow: str = FLOWS[0]
    edges: Lines | None = None

    @staticmethod
    def of(
        plan: Plan, layer: Any, arguments: KnownArguments, flow: str = FLOWS[0], edges: Lines | None = None
    ) -> TracedCall:
        """The calls that a plan runs.

        Raises:
            Refused: If torch cannot trace it.
        """
        return TracedCall(Traced.of(plan, layer), arguments, fewest_of_traced(plan), flow, edges)

    def run(self, layer: Any, adjacency: Tensor, size: Any, kwargs: Mapping[str, Any]) -> tuple[Any, dict] | str:
        """The results of a call and what ``update`` takes, or why torch traces PyG's operators.

        Args:
            layer: The layer.
            adjacency, size, kwargs: What ``propagate`` was given.
        """
        if fallback.are_few_compiled(adjacency, self.fewest_edges):
            return SO_FEW_EDGES
        tensors = self.arguments.tensors(None, kwargs)
        counts = self.arguments.num_nodes(size, kwargs, is_checked=True)
        if tensors is None or counts is None or not self.traced.holds(layer):
            return NOT_TRACED
        if self.edges is not None:
            made = self.edges(adjacency, tensors, counts, layer)
            if made is None:
                return NOT_TRACED
            adjacency, values = made
            tensors = {**tensors, **values}
        edges = Edges(adjacency, counts[0], counts[1], self.flow)
        stacks = self.arguments.stacks_of(tensors)
        if stacks is None:
            out = self.traced.run(layer, edges, tensors)
        else:
            out = one_after_the_other(lambda one: self.traced.run(layer, edges, {**tensors, **one}), stacks)
        return out, self.arguments.for_update(kwargs)


def fewest_of_traced(plan: Plan) -> int:
    """Along how many edges a plan takes less than what torch makes of PyG's operators."""
    return max(fewest_compiled(plan.is_much_work), plan.fewest_edges)


@dataclasses.dataclass(frozen=True)
class UntracedCall:
    """Calls of a kind that have a plan, but none that torch traces.

    Attributes:
        fewest_edges: Along fewer, torch traces PyG's operators.
    """

    fewest_edges: int

    def run(self, layer: Any, adjacency: Tensor, size: Any, kwargs: Mapping[str, Any]) -> str:
        """How a call runs; arguments as of `TracedCall.run`."""
        return SO_FEW_EDGES if fallback.are_few_compiled(adjacency, self.fewest_edges) else UNTRACED


def untraced_as(plan: Plan, reason: str) -> str:
    """The name under which `run_known` finds calls that run between two traces; the reason where there is one alone."""
    return known_as(UntracedCall(fewest_of_traced(plan))) if may_break() else reason


# by names, which torch takes for constants; it sees what an attribute of this holds, and not what another holds
_CALLS = types.SimpleNamespace()
_NAME = 'pygfuse call '
_names = map((_NAME + '{}').format, itertools.count())


def known_as(call: Any) -> str:
    """The name under which `run_known` finds calls of a kind."""
    name = next(_names)
    setattr(_CALLS, name, call)
    return name


def run_known(name: str, layer: Any, adjacency: Tensor, size: Any, kwargs: Mapping[str, Any]) -> tuple[Any, dict] | str:
    """`TracedCall.run` of calls by a name; if it is none, the reason that it is."""
    # torch takes no attribute by any text
    return getattr(_CALLS, name).run(layer, adjacency, size, kwargs) if is_known(name) else name


def is_known(name: str) -> bool:
    """Whether it is the name of such calls, and no reason."""
    return name.startswith(_NAME)


class TracedByTorch:
    """A mixin for compiled layers."""

    def run_traced(self, adjacency: Any, size: Any, kwargs: Mapping[str, Any]) -> tuple[Any, dict] | str:
        """The aggregated messages of a call and what ``update`` takes, or why torch traces PyG's operators.

        Args:
            adjacency, size, kwargs: What ``propagate`` was given.
        """
        is_plain = is_edge_index(adjacency) and not isinstance(adjacency, EdgeIndex) and adjacency.dim() == 2
        # an export is for other processes, which know no program of the layer
        if not is_plain or self.flow != FLOWS[0] or torch.compiler.is_exporting():
            return NOT_TRACED
        names = self.arguments_read()
        call = None if names is None else described(adjacency, size, kwargs, *names, self.node_dim == -2)
        if call is None:
            return NOT_TRACED
        return run_known(self.traced_call(call, str(adjacency.device)), self, adjacency, size, kwargs)

    @torch.compiler.assume_constant_result
    def arguments_read(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """`pygfuse.conv._compiled.call.names_read` of the layer; None if its methods take any arguments."""
        with contextlib.suppress(Refused):
            return names_read(type(self))
        return None

    @torch.compiler.assume_constant_result
    def traced_call(self, call: Described, device: str) -> str:
        """The name of what is known of calls of a kind, or why torch traces PyG's operators.

        Args:
            call: A call, as of `described`.
            device: Where its tensors are.
        """
        edges, size, kwargs = example_of(call, device)
        try:
            example = collected(self, edges, size, kwargs)
            plan = self.plan_of_call(example)
        except (Refused, ValueError) as refusal:
            return str(refusal)
        if isinstance(plan, str):
            # torch takes no constant of another class
            return str(plan)
        try:
            arguments = KnownArguments.of(self, example, kwargs)
            return NOT_TRACED if arguments is None else known_as(TracedCall.of(plan, self, arguments))
        except Refused as refusal:
            return untraced_as(plan, str(refusal))


# an argument of `propagate` by this name is none of `message`
_SIZE = 'size'


def described(
    adjacency: Tensor,
    size: Any,
    kwargs: Mapping[str, Any],
    of_nodes: tuple[str, ...],
    others: tuple[str, ...],
    are_stacked: bool = False,
) -> Described | None:
    """A call in constants; None where it is not of a kind that has a plan.

    Args:
        adjacency, size, kwargs: What ``propagate`` was given.
        of_nodes: The names of arguments that are gathered to the edges.
        others: Those of others that are read; of what is not read nothing is said.
        are_stacked: Whether features of three dimensions are several of nodes.

    Example:
        >>> given = {'x': torch.ones(5, 8), 'edge_weight': torch.ones(9)}
        >>> described(torch.zeros(2, 9, dtype=torch.int64), None, given, ('x',), ('edge_weight',))[1:]
        (('x', ('nodes', 0, torch.float32, 8)), ('edge_weight', ('edges', 0, torch.float32)))
    """
    num_edges, counts = adjacency.shape[1], []
    found: list[tuple[str, Any]] = [('edges', adjacency.dtype)]
    for name in (*of_nodes, *others):
        if name not in kwargs:
            continue
        value = kwargs[name]
        if isinstance(value, Tensor):
            is_of_nodes, is_stack = name in of_nodes, are_stacked and value.dim() == 3
            one = _of_nodes(value, counts, is_stack) if is_of_nodes else _of_edges(value, num_edges)
            if one is None or value.device != adjacency.device:
                return None
        elif isinstance(value, tuple) and len(value) == 2 and name in of_nodes:
            one = tuple([None if part is None else _of_nodes(part, counts) for part in value])
        elif isinstance(value, SIMPLE) and (isinstance(value, (str, type(None))) or has_static_value(value)):
            one = ('number', value)
        else:
            return None
        found.append((name, one))
    if size is not None:
        found.append((_SIZE, tuple([None if count is None else ('count', _place_of(count, counts)) for count in size])))
    return tuple(found) if len(counts) <= len(_NODES) else None


def example_of(call: Described, device: str) -> tuple[Tensor, Any, dict[str, Any]]:
    """The edges, the size and the arguments of a small call, from what `described` says of one."""
    (_, dtype), *arguments = call
    kwargs = {name: _example(value, device) for name, value in arguments}
    size = kwargs.pop(_SIZE, None)
    edges = torch.zeros(2, _EDGES, dtype=dtype, device=device)
    # along which a reduction needs no size
    edges[1, -1] = _NODES[0] - 1
    return edges, size, kwargs


def _example(value: Any, device: str) -> Any:
    if value is None:
        return None
    kind, *said = value
    if not isinstance(kind, str):
        return tuple([_example(part, device) for part in value])
    if kind == 'number':
        return said[0]
    if kind == 'count':
        return _NODES[said[0]]
    place, dtype, *shape = said
    if kind == 'stack':
        shape.insert(1, _NODES[place])
    elif kind != 'shared':
        shape.insert(0, _EDGES if kind == 'edges' else _NODES[place])
    # of one number, however wide
    return torch.zeros((), dtype=dtype, device=device).expand(*shape)


def _of_nodes(value: Tensor, counts: list[int], is_stack: bool = False) -> tuple:
    if is_stack:
        count, rows, channels = value.shape
        return 'stack', _place_of(rows, counts), value.dtype, *_numbers((count, channels))
    return 'nodes', _place_of(value.shape[0], counts), value.dtype, *_numbers(value.shape[1:])


def _of_edges(value: Tensor, num_edges: int) -> tuple | None:
    if value.dim() == 0 or guard_or_false(value.shape[0] != num_edges):
        return 'shared', 0, value.dtype, *_numbers(value.shape)
    # of edges that a forward has chosen nobody knows how many they are
    is_of_edges = guard_or_false(value.shape[0] == num_edges)
    return ('edges', 0, value.dtype, *_numbers(value.shape[1:])) if is_of_edges else None


def _numbers(shape: Sequence[int]) -> list[int]:
    # constants, also where torch takes them for sizes that change
    return [operator.index(number) for number in shape]


def _place_of(count: int, counts: list[int]) -> int:
    for place, known in enumerate(counts):
        if guard_or_false(known == count):
            return place
    counts.append(count)
    return len(counts) - 1
