"""The operands of a call, in the order in which the walks take them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen.arguments import Draws, Operands
from pygfuse.codegen.operands import names_of
from pygfuse.codegen.philox import threshold_and_scale
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.program.products import Product
from pygfuse.program.program import BoundProgram

NO_DRAWS = Draws(None, None, None)


def operands_of(call: Call, side: str) -> Operands:
    """The operands as a walk by rows of `side` takes them."""
    return gatherer_of(call.bound, side)(call.tensors, call.products, call.scalars)


@functools.lru_cache(maxsize=256)
def gatherer_of(bound: BoundProgram, side: str) -> Callable[..., Operands]:
    """``gather(tensors, products, scalars)``: written out for a program, since it runs in every walk."""
    item = {
        'edge_features': 'rows_of(products[{!r}])',
        'edge_weights': 'products[{!r}].weight',
        'scalars': 'float(scalars[{!r}])',
    }
    names = names_of(bound, side)._asdict().items()
    fields = [
        f'({"".join(item.get(field, "tensors[{!r}]").format(name) + ", " for name in found)})' for field, found in names
    ]
    scope = {'Operands': Operands, 'rows_of': _rows_of}
    exec(f'def gather(tensors, products, scalars):\n    return Operands({", ".join(fields)})\n', scope)
    return scope['gather']


def _rows_of(product: Product) -> tuple[Tensor, ...]:
    """Features of edges, and those of loops behind them: always both, as launches are known by the program alone."""
    features, _, loops = product
    return features, nothing(features.dtype) if loops is None else loops


def rows_gathered(rows: Tensor) -> Operands:
    """The operands of a sum of rows, and nothing else."""
    none = ()
    return Operands(none, none, none, (rows,), none, none, none, none, none, none, none, none)


def draws_of(call: Call) -> Draws:
    """What a call's dropout draws, as walks take it."""
    if call.dropout is None:
        return NO_DRAWS
    return Draws(call.dropout.seed, *threshold_and_scale(call.dropout.probability))
