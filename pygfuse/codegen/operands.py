"""Which operands of a program a walk takes where, by their names."""

from __future__ import annotations

import functools

from pygfuse.codegen.arguments import Operands
from pygfuse.program.program import EDGE, PARAMETER, SOURCE, TARGET, BoundProgram
from pygfuse.program.trace import CHANNELS, HEADS, SCALAR


@functools.lru_cache(maxsize=256)
def names_of(bound: BoundProgram, side: str) -> Operands:
    """The names of the operands in each field of what a walk by rows of `side` takes; those of products in both.

    Example:
        >>> from pygfuse.program.library.gat import GAT
        >>> names_of(GAT.bind(('x', 'alpha_src', 'negative_slope')), 'target').gathered_heads
        ['alpha_src']
    """
    other = SOURCE if side == TARGET else TARGET
    return Operands(
        resident_heads=bound.names(side, HEADS),
        resident_channels=bound.names(side, CHANNELS),
        gathered_heads=bound.names(other, HEADS),
        gathered_channels=bound.names(other, CHANNELS),
        edge_heads=bound.names(EDGE, HEADS),
        edge_scalars=bound.names(EDGE, SCALAR),
        edge_rows=bound.edge_rows,
        edge_features=bound.edge_products,
        edge_weights=bound.edge_products,
        parameter_heads=bound.names(PARAMETER, HEADS),
        parameters=bound.names(PARAMETER, CHANNELS),
        scalars=bound.names(PARAMETER, SCALAR),
    )
