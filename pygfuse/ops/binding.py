"""Operands, as layers give them, bound to a program and to a graph: what the targets are asked to compute."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from pygfuse.call.call import Call, Dropout
from pygfuse.graph.graph import Graph
from pygfuse.ops.dropout import drawn_seed
from pygfuse.program.products import Product, as_walked, gradient_of, is_formed
from pygfuse.program.program import EDGE, BoundProgram, EdgeProgram


def bound_of(program: EdgeProgram, operands: Mapping[str, Tensor | Product], scalars: Collection[str]) -> BoundProgram:
    """The program with the operands that are given."""
    kept = [
        name for name, value in operands.items() if isinstance(value, Product) and not is_formed(program, name, value)
    ]
    return program.bind((*operands, *scalars), tuple(kept))


def call_of_operands(
    bound: BoundProgram,
    graph: Graph,
    operands: Mapping[str, Tensor | Product],
    scalars: Mapping[str, float],
    heads: int,
    channels: int,
    reduce: str,
    dropout: float,
    seed: Tensor | None,
    weights: Tensor | None = None,
) -> Call:
    """The call of a program over a graph.

    Raises:
        ValueError: If an operand of edges has not a row for each edge.
    """
    program, tensors, products = bound.program, {}, {}
    for name, value in operands.items():
        if isinstance(value, Product):
            value = as_walked(program, name, Product(*(part if part is None else part.contiguous() for part in value)))
        if isinstance(value, Product):
            products[name], rows = value, value.features
        else:
            tensors[name] = rows = value.contiguous()
        if program.operands[name].side == EDGE and rows.shape[0] != graph.num_edge_ids:
            raise ValueError(
                f"Expected '{name}' to have a row for each of {graph.num_edge_ids} edges (got {rows.shape[0]})"
            )
    drawn = None if seed is None else Dropout(dropout, drawn_seed(seed))
    weights = weights if weights is not None and len(weights) else None
    return Call(bound, graph, tensors, scalars, heads, channels, reduce, drawn, weights, products)


def is_needed(flags: bool | Product) -> bool:
    """Whether an operand, or any part of it, needs a gradient."""
    return any(flags) if isinstance(flags, Product) else flags


def walked_features(bound: BoundProgram, needed: Mapping[str, bool | Product]) -> list[str]:
    """The products that walks take in parts and whose features need a gradient."""
    return [name for name in bound.products if name in needed and (needed[name].features or needed[name].loops)]


def gradients_of(
    operands: Mapping[str, Tensor | Product],
    found: Mapping[str, Tensor | Product],
    needed: Mapping[str, bool | Product],
) -> dict[str, Tensor | Product]:
    """The gradients of operands, from those of what walks took; None where none is needed."""
    gradients = {}
    for name, flags in needed.items():
        if is_needed(flags):
            value = operands[name]
            is_product = isinstance(value, Product)
            gradients[name] = gradient_of(value, found[name], flags) if is_product else found[name]
    return gradients
