"""What is decided once of all calls of a program that are of one kind.

A plan holds no tensor and knows no graph: looking it up takes microseconds where deriving what it says takes tens.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import listed_walks_of
from pygfuse.call.call import Call, Dropout
from pygfuse.graph.graph import Graph
from pygfuse.ops.binding import Needed, needed_of
from pygfuse.ops.dropout import drawn_seed
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import Given, expected_of, given_of
from pygfuse.ops.programs import program_named
from pygfuse.ops.schema import Arguments, with_parts
from pygfuse.ops.walked_products import as_walked, in_parts, rows_in
from pygfuse.program.adjoint import unread_rows
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, SOURCE, EdgeProgram


class Adjoint(NamedTuple):
    """What the adjoint of a call gives and reads.

    Attributes:
        needed: The gradients that are needed.
        tensors: The names of the tensors that need one.
        unread: The places of tensors whose values no walk reads.
        is_sum: Whether it is the same sum or mean along the transpose.
    """

    needed: Needed
    tensors: tuple[str, ...]
    unread: tuple[int, ...]
    is_sum: bool


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
        width: Values in a row.
        bound: The program with the operands that are given.
        has_products: Whether an operand is a product.
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
        self.program, self.tensors, self.numbers, self._in_parts = program, tensors, numbers, in_parts
        self.heads, self.channels, self.width, self.reduce = heads, channels, heads * channels, reduce
        self._plain = [(place, name) for place, name in enumerate(tensors) if ':' not in name]
        self._parts = _places_of_parts(tensors)
        self.has_products = bool(self._parts)
        operands = [*dict.fromkeys(name.partition(':')[0] for name in tensors)]
        self.bound = program.bind((*operands, *numbers), in_parts)
        self.reads_output = self.bound.softmax or reduce in ('max', 'min')
        self.is_noted = any(program.operands[name].side == SOURCE for name in self.bound.present)
        self.expected = expected_of(program, tensors, heads, channels)
        self._of_edges = [name for name in operands if program.operands[name].side == EDGE]
        # of what has a row for each edge
        self._rows_of_edges = [
            (place, name.partition(':')[0])
            for place, name in enumerate(tensors)
            if name.partition(':')[0] in self._of_edges and not name.endswith(':weight')
        ]
        self._walks: dict[torch.dtype, Any] = {}

    def call(
        self,
        graph: Graph,
        tensors: Sequence[Tensor],
        numbers: Mapping[str, float],
        dropout: float,
        seed: Tensor | None,
        weights: Tensor | None = None,
        unread: Sequence[int] = (),
    ) -> Call:
        """The call with these tensors, of which those at the places `unread` have a shape and no values.

        Raises:
            ValueError: If an operand of edges has not a row for each edge.
        """
        given, products = {}, {}
        for place, name in self._plain:
            tensor = tensors[place]
            tensor = tensor if tensor.dim() == 2 else tensor.flatten(1)
            given[name] = tensor if tensor.is_contiguous() or place in unread else tensor.contiguous()
        for name, product in self.products(tensors).items() if self._parts else ():
            if name in self._in_parts:
                products[name] = in_parts(product)
            else:
                given[name] = as_walked(self.program, name, product, forms=True)
        for name in self._of_edges:
            check_rows(name, rows_in(products[name] if name in products else given[name]), graph.num_edge_ids)
        drawn = None if seed is None else Dropout(dropout, drawn_seed(seed))
        return Call(self.bound, graph, given, numbers, self.heads, self.channels, self.reduce, drawn, weights, products)

    def walks(self, like: Tensor) -> Any:
        """The walks along few edges over rows like these, `pygfuse.cpu.few_edges.listed_walks.Walks`."""
        return self._walks.get(like.dtype) or self.walks_on(like.dtype, like.device)

    def walks_on(self, dtype: torch.dtype, device: torch.device) -> Any:
        """The same over rows of a type on a device."""
        found = self._walks.get(dtype)
        if found is None:
            found = self._walks[dtype] = listed_walks_of(device).walks_of(
                self.bound, self.tensors, tuple(self.numbers), self.heads, self.channels, self.reduce, dtype
            )
        return found

    def rows(self, tensors: Sequence[Tensor | None], num_edge_ids: int) -> list[Tensor | None]:
        """Tensors as those walks read them; None for one that they do not read.

        Raises:
            ValueError: As of `call`.
        """
        for place, name in self._rows_of_edges:
            if tensors[place] is not None:
                check_rows(name, tensors[place].shape[0], num_edge_ids)
        return [t if t is None or t.is_contiguous() else t.contiguous() for t in tensors]

    def products(self, tensors: Sequence[Tensor]) -> dict[str, Product]:
        """The products among the operands, as layers give them."""
        return {
            name: Product(*[None if place is None else tensors[place] for place in places])
            for name, places in self._parts.items()
        }

    @functools.cached_property
    def formed(self) -> Plan:
        """The same calls, whose walks take all products multiplied out."""
        return _plan(self.program, self.tensors, (), self.numbers, self.heads, self.channels, self.reduce)

    def arguments(
        self,
        edges: Edges,
        tensors: Sequence[Tensor],
        numbers: dict[str, float],
        dropout: float,
        seed: Tensor | None,
    ) -> Arguments:
        """The call with these tensors as operators take it."""
        given = Given(self.program, self.tensors, tensors, (), numbers)
        return given.arguments(edges, self.heads, self.channels, self.reduce, dropout, seed)

    @functools.lru_cache(maxsize=1024)  # noqa: B019 (plans live as long as the process, and share it)
    def adjoint(self, flags: tuple[bool, ...]) -> Adjoint:
        """What follows from which tensors need a gradient."""
        needed = needed_of(self.bound, with_parts(self.tensors, flags))
        operands = tuple(name for name in self.bound.present if name in needed.names)
        unread = unread_rows(self.bound, operands, self.reduce)
        tensors = tuple(name for name, flag in zip(self.tensors, flags, strict=True) if flag)
        is_sum = self.bound.summed_sources is not None and self.reduce in ('sum', 'mean') and flags == (True,)
        return Adjoint(needed, tensors, tuple(self.tensors.index(name) for name in unread), is_sum)


def check_rows(name: str, rows: int, num_edge_ids: int) -> None:
    if rows != num_edge_ids:
        raise ValueError(f"Expected '{name}' to have a row for each of {num_edge_ids} edges (got {rows})")


def _places_of_parts(tensors: Sequence[str]) -> dict[str, tuple[int | None, ...]]:
    """Of each product, the places of its parts among the tensors."""
    places = {name: place for place, name in enumerate(tensors)}
    names = dict.fromkeys(name.partition(':')[0] for name in tensors if ':' in name)
    return {name: tuple([places.get(f'{name}:{part}') for part in Product._fields]) for name in names}


_plan = functools.lru_cache(maxsize=1024)(Plan)


def plan_of(given: Given, heads: int, channels: int, reduce: str) -> Plan:
    """The plan of calls with such operands."""
    return _plan(given.program, given.names, given.in_parts, tuple(given.numbers), heads, channels, reduce)


def plan_named(
    program: EdgeProgram, names: tuple[str, ...], numbers: tuple[str, ...], heads: int, channels: int, reduce: str,
    in_parts: tuple[str, ...] = (),
) -> Plan:  # fmt: skip
    """The plan of calls whose operands are tensors (of products `in_parts`, both) and numbers of these names."""
    return _plan(program, names, in_parts, numbers, heads, channels, reduce)


def plan_of_arguments(arguments: Arguments) -> tuple[Plan, Given]:
    """The plan of what an operator takes, and the operands."""
    given = given_of(program_named(arguments.program), arguments.operands() | arguments.numbers())
    return plan_of(given, arguments.heads, arguments.channels, arguments.reduce), given


def call_of(arguments: Arguments, weights: Tensor | None = None) -> Call:
    """The call that an operator's arguments stand for; `weights`, those of edges that forward kept, may be empty."""
    edges = Edges(arguments.token, arguments.num_sources, arguments.num_targets, arguments.flow, arguments.loops)
    plan, given = plan_of_arguments(arguments)
    weights = weights if weights is not None and len(weights) else None
    return plan.call(edges.graph(), given.tensors, given.numbers, arguments.dropout, arguments.seed, weights)
