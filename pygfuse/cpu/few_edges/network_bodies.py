"""What the kernels of networks on few edges do, written out for a network: see `pygfuse.cpu.few_edges.networks`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from pygfuse.cpu.few_edges.pieces import EXTREMES, checked, of_block, places_of, reduced, spread, turned, zeroed
from pygfuse.cpu.networks.row_networks import Applied, LinearMap
from pygfuse.cpu.networks.row_stages import (
    ACTIVATION_REGISTERS,
    BLOCK,
    RowText,
    adjoint_of,
    application,
    outer,
    product,
    totals,
)
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import pointer_at
from pygfuse.cpu.vectors.numbers import NUMPY_TYPES
from pygfuse.cpu.walks.edge_products import TOGETHER, outer_sums, registers_of_block, repeated
from pygfuse.program.activation import Activation
from pygfuse.program.networks_along_edges import FewEdgeNetwork


def _steps_of(network: FewEdgeNetwork) -> tuple[LinearMap | Applied, ...]:
    """The stages with the widths of their values."""
    widths = network.widths
    return tuple(
        Applied(stage, after) if isinstance(stage, Activation) else LinearMap(before, after)
        for stage, before, after in zip(network.stages, widths, widths[1:], strict=False)
    )


def _ends(network: FewEdgeNetwork, text: RowText) -> None:
    """The first map of both ends."""
    width, hidden, registers = network.width, network.hidden, registers_of_block()
    turned(text, 'turned0', 'weights[0]', hidden, 2 * width)
    text.say(f'of_difference = pointer_at(turned0, {width * hidden})')
    first = f'{width}, of_difference, None, {hidden}, column, of_sources'
    second = f'{width}, turned0, biases[0], {hidden}, column, of_targets'
    text.call(hidden, registers, product, f'x, 0, num_sources, {first}', f'x_target, 0, num_targets, {second}')
    # W_1 - W_2 would hide that an infinite x_i gives NaN
    if network.shared:
        text.say(f'for place in range(num_targets * {hidden}):')
        text.say('of_targets[place] -= of_sources[place]', 2)
        return
    less = f'x_target, num_targets, {width}, of_difference, {hidden}, {hidden}, column, -1.0, of_targets'
    text.call(hidden, registers, _added_product, less)


def _values(network: FewEdgeNetwork, text: RowText, last: int) -> None:
    """The values of all edges after the first so many stages, block by block."""
    room = ', '.join(f'pointer_at(room, {place})' for place in places_of(network.widths, 'num_edges'))
    text.say(f'held = ({room},)')
    maps = [step for step in _steps_of(network)[:last] if isinstance(step, LinearMap)]
    for j, step in enumerate(maps, start=1):
        turned(text, f'turned{j}', f'weights[{j}]', step.after, step.before)
    text.say(f'for first in range(0, num_edges, {BLOCK}):')
    text.say(f'last = min(num_edges, first + {BLOCK})', 2)
    text.call(network.hidden, 4, _begun, _ENDS.format(network.hidden), indent=2)
    j = 1
    for i, step in enumerate(_steps_of(network)[:last]):
        if isinstance(step, LinearMap):
            arguments = f'held[{i}], first, last, {step.before}, turned{j}, biases[{j}], {step.after}, column, '
            text.call(step.after, registers_of_block(), product, arguments + f'held[{i + 1}]', indent=2)
            j += 1
        else:
            apply = functools.partial(application, step.activation, False)
            arguments = f'first, last, num_edges, {step.width}, column, held[{i}], held[{i + 1}]'
            text.call(step.width, ACTIVATION_REGISTERS, apply, arguments, indent=2)


_ENDS = 'first, last, targets, sources, {}, column, of_sources, of_targets, held[0]'


def forward_body(network: FewEdgeNetwork) -> Callable:
    """The kernel that gives the reduced values, and what the first map makes of both ends."""
    text = RowText(network.dtype)
    text.say('', empty=np.empty, element=NUMPY_TYPES[network.dtype])
    checked(text)
    _ends(network, text)
    _values(network, text, len(_steps_of(network)))
    reduced(text, network.reduce, network.widths[-1], f'held[{len(_steps_of(network))}]')
    run = text.function(
        'edges, target_row, num_targets, num_sources, x, x_target, weights, biases, of_sources, of_targets, room, out, '
        'failed'
    )

    def forward(
        part, edges, target_row, num_targets, num_sources, x, x_target, weights, biases, of_sources, of_targets, room,
        out, failed,
    ):  # fmt: skip
        run(
            edges, target_row, num_targets, num_sources, x, x_target, weights, biases, of_sources, of_targets, room,
            out, failed,
        )  # fmt: skip

    return forward


def backward_body(network: FewEdgeNetwork) -> Callable:
    """The kernel that gives the gradients of features, weights and biases."""
    text = RowText(network.dtype)
    text.say('', empty=np.empty, element=NUMPY_TYPES[network.dtype])
    checked(text)
    is_extreme, steps = network.reduce in EXTREMES, _steps_of(network)
    # what a map gives last is read by a maximum alone
    skips = not is_extreme and isinstance(steps[-1] if steps else None, LinearMap)
    _values(network, text, len(steps) - skips)
    width = network.widths[-1]
    to_edges = functools.partial(spread, network.reduce)
    arguments = (
        f'0, num_edges, num_targets, targets, counts, {width}, column, held[{len(steps)}], best, share, grad, after_'
    )
    text.say(f'after_ = pointer_at(room, num_edges * {sum(network.widths)})')
    text.say(f'best, share = pointer_at(of_rows, 0), pointer_at(of_rows, num_targets * {width})')
    text.call(width, ACTIVATION_REGISTERS, to_edges, arguments)
    maps = [step for step in steps if isinstance(step, LinearMap)]
    for j, step in enumerate(maps, start=1):
        zeroed(text, f'of_weights[{j}]', step.after * step.before)
        text.say(f'if of_biases[{j}] is not None:')
        zeroed(text, f'of_biases[{j}]', step.after, 2)
    text.say(f'for first in range(0, num_edges, {BLOCK}):')
    text.say(f'last = min(num_edges, first + {BLOCK})', 2)
    j, after = len(maps), 'after_'
    for i, step in reversed(list(enumerate(steps))):
        if isinstance(step, Applied):
            back = functools.partial(adjoint_of, step.activation, False)
            arguments = f'first, last, num_edges, {step.width}, column, held[{i}], {after}'
            text.call(step.width, ACTIVATION_REGISTERS, back, arguments, indent=2)
            continue
        arguments = f'first, last, {step.before}, {step.after}, column, held[{i}], {after}, of_weights[{j}], 0, nothing'
        text.call(step.before, registers_of_block(), outer, arguments, indent=2)
        arguments = f'first, last, {step.after}, column, {after}, of_biases[{j}], 0'
        text.call(step.after, 1, totals, arguments, indent=2)
        # the gradient takes the place of the values
        arguments = f'{after}, first, last, {step.after}, weights[{j}], None, {step.before}, column, held[{i}]'
        text.call(step.before, registers_of_block(), product, arguments, indent=2)
        j, after = j - 1, f'held[{i}]'
    _back_to_ends(network, text, after)
    names = (
        'edges, target_row, num_targets, num_sources, x, x_target, weights, biases, of_sources, of_targets, room, '
        'of_rows, grad, nothing, of_x, of_x_target, of_weights, of_biases, failed'
    )
    run = text.function(names)

    def backward(
        part, edges, target_row, num_targets, num_sources, x, x_target, weights, biases, of_sources, of_targets, room,
        of_rows, grad, nothing, of_x, of_x_target, of_weights, of_biases, failed,
    ):  # fmt: skip
        run(
            edges, target_row, num_targets, num_sources, x, x_target, weights, biases, of_sources, of_targets, room,
            of_rows, grad, nothing, of_x, of_x_target, of_weights, of_biases, failed,
        )  # fmt: skip

    return backward


def _back_to_ends(network: FewEdgeNetwork, text: RowText, after: str) -> None:
    """From the gradients of the edges' first values, named `after`, to those of the first map and of both ends."""
    width, hidden, registers = network.width, network.hidden, registers_of_block()
    of_weight = f'of_weights[0], {hidden}, {2 * width}'
    for name, place in (('to_targets', '0'), ('to_sources', f'num_targets * {hidden}')):
        text.say(f'{name} = pointer_at(of_rows, {place})')
        rows = 'num_targets' if name == 'to_targets' else 'num_sources'
        zeroed(text, name, f'{rows} * {hidden}')
    text.call(hidden, 1, _scattered, f'num_edges, targets, sources, {hidden}, column, {after}, to_targets, to_sources')
    zeroed(text, 'of_weights[0]', 2 * width * hidden)
    text.say('if of_biases[0] is not None:')
    zeroed(text, 'of_biases[0]', hidden, 2)
    text.call(hidden, 1, totals, f'0, num_targets, {hidden}, column, to_targets, of_biases[0], 0')
    of_target = f'num_targets, {width}, column, x_target, to_targets, {of_weight}'
    of_source = f'num_sources, {width}, column, x, to_sources, {of_weight}, column + {width}, nothing'
    # a target is subtracted in the difference
    if network.shared:
        text.say(f'for place in range(num_targets * {hidden}):')
        text.say('to_sources[place] -= to_targets[place]', 2)
    text.call(width, registers, _summed, f'{of_target}, column, nothing', of_source)
    _back_to_nodes(network, text)
    if not network.shared:
        text.say(f'for place in range(num_targets * {hidden}):')
        text.say('to_targets[place] = -to_targets[place]', 2)
        text.call(width, registers, _summed, f'{of_target}, column + {width}, nothing')


def _back_to_nodes(network: FewEdgeNetwork, text: RowText) -> None:
    width, hidden = network.width, network.hidden
    own = 'of_x' if network.shared else 'of_x_target'
    rest = f'{2 * width}, {width}, column'
    calls = [
        f'to_targets, num_targets, {hidden}, weights[0], {rest}, 1.0, {own}',
        f'to_sources, num_sources, {hidden}, of_difference, {rest}, 1.0, of_x',
    ]
    text.say('if of_x is not None:')
    zeroed(text, 'of_x', f'num_sources * {width}', 2)
    if not network.shared:
        zeroed(text, own, f'num_targets * {width}', 2)
        calls.append(f'to_targets, num_targets, {hidden}, of_difference, {rest}, -1.0, {own}')
    text.say(f'of_difference = pointer_at(weights[0], {width})', 2)
    text.call(width, registers_of_block(), _added_product, *calls, indent=2)


def _begun(block: Layout) -> Function:
    """``begin(first, last, targets, sources, width, column, of_sources, of_targets, out)``."""
    text = """
def begin(first, last, targets, sources, width, column, of_sources, of_targets, out):
    for e in range(first, last):
        own = load_row(of_targets, targets[e] * width + column)
        store_row(out, e * width + column, own + load_row(of_sources, sources[e] * width + column))
    return
"""
    return of_block(text, block)


def _scattered(block: Layout) -> Function:
    """``scatter(num_edges, targets, sources, width, column, grad, to_targets, to_sources)``."""
    text = """
def scatter(num_edges, targets, sources, width, column, grad, to_targets, to_sources):
    for e in range(num_edges):
        row = load_row(grad, e * width + column)
        here, there = targets[e] * width + column, sources[e] * width + column
        store_row(to_targets, here, load_row(to_targets, here) + row)
        store_row(to_sources, there, load_row(to_sources, there) + row)
    return
"""
    return of_block(text, block)


def _summed(block: Layout) -> Function:
    """``add_sums(rows, width, column, values, grad, sums, size, stride, place, nothing)``.

    Adds ``grad.t() @ values`` to ``sums``, whose rows are ``stride`` long, behind ``place``.
    """
    text = f"""
def add_sums(rows, width, column, values, grad, sums, size, stride, place, nothing):
    for first in range(0, rows, {BLOCK}):
        some = pointer_at(values, first * width)
        add((nothing, grad), None, first, min({BLOCK}, rows - first), some, width, column, sums, place, size, stride)
    return
"""
    return of_block(text, block, add=outer_sums(block), pointer_at=pointer_at)


def _added_product(block: Layout) -> Function:
    """``add_product(source, rows, size, weight, stride, width, column, factor, out)``.

    Adds ``factor * source @ weight`` to ``out``; rows of the weight are ``stride`` long.
    """
    text = [
        'def add_product(source, rows, size, weight, stride, width, column, factor, out):',
        f'    for q in range(0, rows, {TOGETHER}):',
        # the last row, where there are no more
        *repeated('        q# = min(q + #, rows - 1)'),
        *repeated('        row# = pointer_at(source, q# * size)'),
        *repeated('        sum# = row_full(0.0)'),
        '        for d in range(size):',
        '            values = load_row(weight, d * stride + column)',
        *repeated('            sum# = sum# + row#[d] * values'),
        # the last row may be there several times: all are read before one is written
        *repeated('        sum# = load_row(out, q# * width + column) + sum# * factor'),
        *repeated('        store_row(out, q# * width + column, sum#)'),
        '    return',
    ]
    return of_block('\n'.join(text), block, pointer_at=pointer_at)
