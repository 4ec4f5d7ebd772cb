"""An activation of a chunk's values, alone or together with its tangent, and the adjoint of both, each in one pass.

What is computed of a value is derived from the activation as programs write it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.cpu.walks.inlining import compiled
from pygfuse.program.activation import Activation
from pygfuse.program.library.activations import ACTIVATIONS
from pygfuse.program.trace import CHANNELS, Trace
from pygfuse.program.vocabulary import equal, positive, softplus

_REGISTERS, _EDGES_A_PART = 4, 128
# torch takes logarithms one by one
_SLOW_IN_TORCH = ('softplus', 'shifted_softplus')
_FUNCTIONS: dict[str, Callable] = {
    **{name: function for name, function in ACTIVATIONS.items() if name not in ('none', 'prelu')},
    # torch's derivative at NaN is that of what is positive
    'relu': lambda z, first, second, slope: positive(z, z, equal(z, z, 0.0, z)),
    # torch's is the identity beyond 20
    'shifted_softplus': lambda z, shift, second, slope: positive(z - 20.0, z, softplus(z)) - shift,
}


@functools.lru_cache(maxsize=64)
def texts_of(act: Activation) -> tuple[str, str, str, str]:
    """The activation, its tangent, and the adjoints of both as functions of ``z``, of ``t`` and ``z``."""
    numbers = (*act.numbers, 0.0, 0.0)[:2]
    trace = Trace.of(lambda z: _FUNCTIONS[act.name](z, *numbers, 0.0), {'z': CHANNELS}, CHANNELS)
    moved = trace.tangent({'z': 't'})
    moved = dataclasses.replace(moved, operands=tuple(sorted(moved.operands, key=lambda operand: operand.name)))
    return (
        *(trace.text('function'), moved.text('tangent')),
        *(trace.adjoint_text('adjoint', [['z']]), moved.adjoint_text('adjoint_of_tangent', [['t', 'z']])),
    )


def _alone_body(act: Activation, layout: Layout) -> Callable:
    load_row, store_row, function = layout.load_row, layout.store_row, compiled(texts_of(act)[0])

    def alone(part, starts, edges, step, width, values, out):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for e in range(piece * step, min(edges, (piece + 1) * step)):
            store_row(out, e * width + channel, function(load_row(values, e * width + channel)))

    return alone


def _forward_body(act: Activation, layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row
    function, tangent = (compiled(text) for text in texts_of(act)[:2])

    def forward(part, starts, edges, step, width, values, out):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for e in range(piece * step, min(edges, (piece + 1) * step)):
            at, behind = e * width + channel, (edges + e) * width + channel
            z = load_row(values, at)
            store_row(out, at, function(z))
            store_row(out, behind, tangent(load_row(values, behind), z))

    return forward


def _backward_body(act: Activation, layout: Layout) -> Callable:
    load_row, store_row = layout.load_row, layout.store_row
    adjoint, adjoint_of_tangent = (compiled(text) for text in texts_of(act)[2:])

    def backward(part, starts, edges, step, width, values, grad):
        channel, piece = starts[part % len(starts)], part // len(starts)
        for e in range(piece * step, min(edges, (piece + 1) * step)):
            at, behind = e * width + channel, (edges + e) * width + channel
            z = load_row(values, at)
            of_values = adjoint(load_row(grad, at), z)[0]
            of_both = adjoint_of_tangent(load_row(grad, behind), load_row(values, behind), z)[0]
            store_row(grad, at, of_values[0] + of_both[1])
            store_row(grad, behind, of_both[0])

    return backward


@functools.lru_cache(maxsize=256)
def _kernel(body: Callable, act: Activation, layout: Layout) -> Kernel:
    name = f'{body.__name__.strip("_")} of {act.name} and its tangent, {layout.channels}, {layout.element}'
    return Kernel(body(act, layout), name, (*texts_of(act), str(layout.row)))


def _run(body: Callable, act: Activation, values: Tensor, other: Tensor) -> None:
    *_, edges, width = values.shape
    for layout, starts in blocks(values.dtype, width, _REGISTERS):
        parts = -(-edges // _EDGES_A_PART) * len(starts)
        _kernel(body, act, layout)(parts, starts, edges, _EDGES_A_PART, width, values, other)


def activated(act: Activation, values: Tensor, out: Tensor) -> None:
    """Writes an activation of values ``[edges, width]`` to `out`, which may be `values`."""
    if act.name in _SLOW_IN_TORCH:
        _run(_alone_body, act, values, out)
    else:
        act.into(values, out)


def activated_with_tangent(act: Activation, values: Tensor, out: Tensor) -> None:
    """Writes an activation and its tangent to `out`; both are ``[2, edges, width]``, values and then tangents."""
    _run(_forward_body, act, values, out)


def activated_with_tangent_back(act: Activation, values: Tensor, grad: Tensor) -> None:
    """Turns gradients of an activation and its tangent into those of `values` and their tangents, in place."""
    _run(_backward_body, act, values, grad)
