"""What is decided once of all calls of a program that are of one kind.

A plan holds no tensor and knows no graph: looking it up takes microseconds where deriving what it says takes tens.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from pygfuse.call.call import Call, Dropout
from pygfuse.graph.graph import Graph
from pygfuse.ops.binding import Needed, needed_of
from pygfuse.ops.dropout import drawn_seed
from pygfuse.ops.edges import Edges
from pygfuse.ops.schema import Arguments, with_parts
from pygfuse.program.adjoint import unread_rows
from pygfuse.program.products import Product, Value, as_walked, is_formed
from pygfuse.program.program import EDGE, PARAMETER, PROGRAMS, SOURCE, TARGET, EdgeProgram
from pygfuse.program.trace import CHANNELS, HEADS


class Adjoint(NamedTuple):
    """What the adjoint of a call gives and reads.

    Attributes:
        needed: The gradients that are needed.
        tensors: The names of the tensors that need one.
        unread: The places of tensors whose values no walk reads.
    """

    needed: Needed
    tensors: tuple[str, ...]
    unread: tuple[int, ...]


class Plan:
    """Calls with the same operands, reduction and width of rows.

    Args:
        program: The program.
        tensors: The names of tensors, those of products as parts (``'edge:features'``), in order.
        in_parts: The names of products that walks take in parts.
        numbers: The names of scalars.
        heads, channels: Of the rows.
        reduce: How messages are reduced.

    Attributes:
        bound: The program with the operands that are given.
        reads_output: Whether the adjoint reads the output; else its owner may write to it.
        is_noted: Whether a layer's report tells of the backward pass: its other aggregations (degrees) do not walk
            along the edges.
    """

    def __init__(
        self,
        program: EdgeProgram,
        tensors: tuple[str, ...],
        in_parts: tuple[str, ...],
        numbers: tuple[str, ...],
        heads: int,
        channels: int,
        reduce: str,
    ) -> None:
        self.program, self.tensors, self.numbers = program, tensors, numbers
        self.heads, self.channels, self.reduce = heads, channels, reduce
        self._plain = [(place, name) for place, name in enumerate(tensors) if ':' not in name]
        self.products = [*dict.fromkeys(name.partition(':')[0] for name in tensors if ':' in name)]
        operands = [*dict.fromkeys(name.partition(':')[0] for name in tensors)]
        self.bound = program.bind((*operands, *numbers), in_parts)
        self.reads_output = self.bound.softmax or reduce in ('max', 'min')
        self.is_noted = any(program.operands[name].side == SOURCE for name in self.bound.present)
        widths = {CHANNELS: heads * channels, HEADS: heads}
        # of the parts of a product, the weight alone has a width that is known
        self._expected = [
            (place, name.replace(':', '.'), None if ':' in name else operand.side, widths.get(operand.level, 1))
            for place, name in enumerate(tensors)
            for operand in [program.operands[name.partition(':')[0]]]
            if ':' not in name or name.endswith(':weight')
        ]
        self._of_edges = [name for name in operands if program.operands[name].side == EDGE]

    def check(self, tensors: Sequence[Tensor], num_sources: int, num_targets: int) -> None:
        """Raises a ValueError that names a tensor that has another shape than expected."""
        for place, name, side, width in self._expected:
            tensor = tensors[place]
            have = expected = tensor.shape[0]
            if side is SOURCE:
                expected = num_sources
            elif side is TARGET:
                expected = num_targets
            elif side is PARAMETER:
                expected = 1
            if have != expected or tensor.numel() != have * width:
                side = 'edge' if side is None else side
                raise ValueError(
                    f"Expected '{name}' to hold {width} values for each of {expected} {side} rows "
                    f'(got shape {list(tensor.shape)})'
                )

    def call(
        self,
        graph: Graph,
        tensors: Sequence[Tensor],
        numbers: Mapping[str, float],
        dropout: float,
        seed: Tensor | None,
        weights: Tensor | None = None,
    ) -> Call:
        """The call with these tensors.

        Raises:
            ValueError: If an operand of edges has not a row for each edge.
        """
        given, products = {}, {}
        for place, name in self._plain:
            tensor = tensors[place]
            tensor = tensor if tensor.dim() == 2 else tensor.flatten(1)
            given[name] = tensor if tensor.is_contiguous() else tensor.contiguous()
        if self.products:
            parts = with_parts(self.tensors, tensors)
            for name in self.products:
                product = Product(*(part if part is None else part.contiguous() for part in parts[name]))
                walked = as_walked(self.program, name, product)
                (products if isinstance(walked, Product) else given)[name] = walked
        for name in self._of_edges:
            rows = (products[name].features if name in products else given[name]).shape[0]
            if rows != graph.num_edge_ids:
                raise ValueError(f"Expected '{name}' to have a row for each of {graph.num_edge_ids} edges (got {rows})")
        drawn = None if seed is None else Dropout(dropout, drawn_seed(seed))
        return Call(self.bound, graph, given, numbers, self.heads, self.channels, self.reduce, drawn, weights, products)

    @functools.lru_cache(maxsize=64)  # noqa: B019 (plans live as long as the process)
    def adjoint(self, flags: tuple[bool, ...]) -> Adjoint:
        """What follows from which tensors need a gradient."""
        needed = needed_of(self.bound, with_parts(self.tensors, flags))
        operands = tuple(name for name in self.bound.present if name in needed.names)
        unread = unread_rows(self.bound, operands, self.reduce)
        tensors = tuple(name for name, flag in zip(self.tensors, flags, strict=True) if flag)
        return Adjoint(needed, tensors, tuple(self.tensors.index(name) for name in unread))

    def arguments(
        self,
        edges: Edges,
        tensors: Sequence[Tensor],
        numbers: Mapping[str, float],
        dropout: float,
        seed: Tensor | None,
    ) -> Arguments:
        """The call as operators take it."""
        return Arguments(
            *(self.program.name, ','.join(self.tensors), [tensor.flatten(1) for tensor in tensors]),
            *(','.join(numbers), list(numbers.values())),
            *(edges.token, edges.num_sources, edges.num_targets, edges.flow, edges.loops),
            *(self.heads, self.channels, self.reduce, dropout, seed),
        )


_plan = functools.lru_cache(maxsize=1024)(Plan)


def plan_of(
    program: EdgeProgram, operands: Mapping[str, Value], heads: int, channels: int, reduce: str
) -> tuple[Plan, list[Tensor], dict[str, float]]:
    """The plan of a call with its tensors, in the plan's order, and its scalars."""
    names: list[str] = []
    tensors: list[Tensor] = []
    numbers: dict[str, float] = {}
    in_parts: tuple[str, ...] = ()
    for name, value in operands.items():
        if isinstance(value, Tensor):
            names.append(name)
            tensors.append(value)
        elif isinstance(value, Product):
            for field, part in value._asdict().items():
                if part is not None:
                    names.append(f'{name}:{field}')
                    tensors.append(part)
            if not is_formed(program, name, value):
                in_parts += (name,)
        elif isinstance(value, (int, float)):
            numbers[name] = float(value)
    return _plan(program, tuple(names), in_parts, tuple(numbers), heads, channels, reduce), tensors, numbers


def call_of(arguments: Arguments, weights: Tensor | None = None) -> Call:
    """The call that an operator's arguments stand for; `weights`, those of edges that forward kept, may be empty."""
    edges = Edges(arguments.token, arguments.num_sources, arguments.num_targets, arguments.flow, arguments.loops)
    operands = arguments.operands() | arguments.numbers()
    plan, tensors, numbers = plan_of(
        PROGRAMS[arguments.program], operands, arguments.heads, arguments.channels, arguments.reduce
    )
    weights = weights if weights is not None and len(weights) else None
    return plan.call(edges.graph(), tensors, numbers, arguments.dropout, arguments.seed, weights)


def check_types(plan: Plan, tensors: Sequence[Tensor], may_differ: bool) -> None:
    """Raises a ValueError that names a tensor of another device, or, unless types may differ, of another type."""
    first = tensors[0]
    device, dtype = first.device, first.dtype
    for tensor, name in zip(tensors, plan.tensors, strict=True):
        if tensor.device != device:
            raise ValueError(f"Expected '{name}' on the device of '{plan.tensors[0]}', {device} (got {tensor.device})")
        if tensor.dtype is not dtype and not may_differ:
            raise ValueError(f"Expected '{name}' of the type of '{plan.tensors[0]}', {dtype} (got {tensor.dtype})")
