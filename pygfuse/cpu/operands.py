"""The operands of a call, in the order in which the walks take them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from pygfuse.call.call import Call
from pygfuse.codegen.arguments import Draws, Operands
from pygfuse.codegen.philox import threshold_and_scale
from pygfuse.program.program import EDGE, PARAMETER, SOURCE, TARGET, BoundProgram
from pygfuse.program.trace import CHANNELS, HEADS, SCALAR

_NO_DRAWS = Draws(None, None, None)


def operands_of(call: Call, side: str) -> Operands:
    """The operands as a walk by rows of `side` takes them."""
    return _gatherer(call.bound, side)(call.tensors, call.products, call.scalars)


@functools.lru_cache(maxsize=256)
def _gatherer(bound: BoundProgram, side: str) -> Callable[..., Operands]:
    """``gather(tensors, products, scalars)``: written out for a program, since it runs in every walk."""
    other = SOURCE if side == TARGET else TARGET

    def tensors(names: list[str]) -> str:
        return f'({"".join(f"tensors[{name!r}], " for name in names)})'

    def parts(part: str) -> str:
        return f'({"".join(f"products[{name!r}].{part}, " for name in bound.edge_products)})'

    numbers = ''.join(f'float(scalars[{name!r}]), ' for name in bound.names(PARAMETER, SCALAR))
    fields = Operands(
        resident_heads=tensors(bound.names(side, HEADS)),
        resident_channels=tensors(bound.names(side, CHANNELS)),
        gathered_heads=tensors(bound.names(other, HEADS)),
        gathered_channels=tensors(bound.names(other, CHANNELS)),
        edge_heads=tensors(bound.names(EDGE, HEADS)),
        edge_scalars=tensors(bound.names(EDGE, SCALAR)),
        edge_rows=tensors(bound.edge_rows),
        edge_features=parts('features'),
        edge_weights=parts('weight'),
        parameter_heads=tensors(bound.names(PARAMETER, HEADS)),
        parameters=tensors(bound.names(PARAMETER, CHANNELS)),
        scalars=f'({numbers})',
    )
    scope = {'Operands': Operands}
    exec(f'def gather(tensors, products, scalars):\n    return Operands({", ".join(fields)})\n', scope)
    return scope['gather']


def draws_of(call: Call) -> Draws:
    """What a call's dropout draws, as walks take it."""
    if call.dropout is None:
        return _NO_DRAWS
    return Draws(call.dropout.seed, *threshold_and_scale(call.dropout.probability))
