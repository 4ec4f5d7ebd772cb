"""What the kernels of networks on few edges do, written out for a network: see `pygfuse.cpu.few_edge_networks`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from pygfuse.cpu.edge_products import TOGETHER, outer_sums, registers_of_block, repeated
from pygfuse.cpu.ends import ends_of, is_any_outside
from pygfuse.cpu.inlining import compiled
from pygfuse.cpu.layout import Layout
from pygfuse.cpu.memory import pointer_at
from pygfuse.cpu.numbers import NUMPY_TYPES
from pygfuse.cpu.row_networks import Applied, LinearMap
from pygfuse.cpu.row_stages import ACTIVATION_REGISTERS, BLOCK, RowText, adjoint_of, application, outer, product, totals
from pygfuse.cpu.translation.functions import Function
from pygfuse.program.activation import Activation
from pygfuse.program.networks_along_edges import FewEdgeNetwork

_EXTREMES = ('max', 'min')


def _steps_of(network: FewEdgeNetwork) -> tuple[LinearMap | Applied, ...]:
    """The stages with the widths of their values."""
    widths = network.widths
    return tuple(
        Applied(stage, after) if isinstance(stage, Activation) else LinearMap(before, after)
        for stage, before, after in zip(network.stages, widths, widths[1:], strict=False)
    )


def _places(widths: Sequence[int], unit: str) -> list[str]:
    """Where buffers of these widths begin, one behind another, in what is given for `unit`."""
    return [f'{unit} * {sum(widths[:i])}' for i in range(len(widths))]


def _checked(text: RowText) -> None:
    """Edges are looked at before anything is read by them, and counted by target."""
    text.say(
        """
        targets, sources, num_edges = ends_of(edges, target_row)
        failed[0] = 0
        if is_any_outside(targets, sources, num_edges, num_targets, num_sources):
            failed[0] = 1
            return
        counts = empty(num_targets, element)
        for v in range(num_targets):
            counts[v] = 0.0
        for edge in range(num_edges):
            counts[targets[edge]] += 1.0
        """,
        ends_of=ends_of,
        is_any_outside=is_any_outside,
    )


def _ends(network: FewEdgeNetwork, text: RowText) -> None:
    """The first map of both ends."""
    width, hidden, registers = network.width, network.hidden, registers_of_block()
    _turned(text, 0, hidden, 2 * width)
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


def _turned(text: RowText, j: int, after: int, before: int) -> None:
    """A weight as products read it, ``[before, after]``."""
    text.say(
        f"""
        turned{j} = empty({after * before}, element)
        for row in range({after}):
            for column in range({before}):
                turned{j}[column * {after} + row] = weights[{j}][row * {before} + column]
        """
    )


def _values(network: FewEdgeNetwork, text: RowText, last: int) -> None:
    """The values of all edges after the first so many stages, block by block."""
    room = ', '.join(f'pointer_at(room, {place})' for place in _places(network.widths, 'num_edges'))
    text.say(f'held = ({room},)')
    maps = [step for step in _steps_of(network)[:last] if isinstance(step, LinearMap)]
    for j, step in enumerate(maps, start=1):
        _turned(text, j, step.after, step.before)
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
    _checked(text)
    _ends(network, text)
    _values(network, text, len(_steps_of(network)))
    width = network.widths[-1]
    reduced = functools.partial(_reduced, network.reduce)
    arguments = f'num_edges, num_targets, targets, counts, {width}, column, held[{len(_steps_of(network))}], out'
    text.call(width, ACTIVATION_REGISTERS, reduced, arguments)
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
    _checked(text)
    is_extreme, steps = network.reduce in _EXTREMES, _steps_of(network)
    # what a map gives last is read by a maximum alone
    skips = not is_extreme and isinstance(steps[-1] if steps else None, LinearMap)
    _values(network, text, len(steps) - skips)
    width = network.widths[-1]
    spread = functools.partial(_spread, network.reduce)
    arguments = (
        f'num_edges, num_targets, targets, counts, {width}, column, held[{len(steps)}], best, share, grad, after_'
    )
    text.say(f'after_ = pointer_at(room, num_edges * {sum(network.widths)})')
    text.say(f'best, share = pointer_at(of_rows, 0), pointer_at(of_rows, num_targets * {width})')
    text.call(width, ACTIVATION_REGISTERS, spread, arguments)
    maps = [step for step in steps if isinstance(step, LinearMap)]
    for j, step in enumerate(maps, start=1):
        _zeroed(text, f'of_weights[{j}]', step.after * step.before)
        text.say(f'if of_biases[{j}] is not None:')
        _zeroed(text, f'of_biases[{j}]', step.after, 2)
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
        _zeroed(text, name, f'{rows} * {hidden}')
    text.call(hidden, 1, _scattered, f'num_edges, targets, sources, {hidden}, column, {after}, to_targets, to_sources')
    _zeroed(text, 'of_weights[0]', 2 * width * hidden)
    text.say('if of_biases[0] is not None:')
    _zeroed(text, 'of_biases[0]', hidden, 2)
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
    _zeroed(text, 'of_x', f'num_sources * {width}', 2)
    if not network.shared:
        _zeroed(text, own, f'num_targets * {width}', 2)
        calls.append(f'to_targets, num_targets, {hidden}, of_difference, {rest}, -1.0, {own}')
    text.say(f'of_difference = pointer_at(weights[0], {width})', 2)
    text.call(width, registers_of_block(), _added_product, *calls, indent=2)


def _zeroed(text: RowText, name: str, length: int | str, indent: int = 1) -> None:
    text.say(f'for place in range({length}):', indent)
    text.say(f'{name}[place] = 0.0', indent + 1)


def _begun(block: Layout) -> Function:
    """``begin(first, last, targets, sources, width, column, of_sources, of_targets, out)``."""
    text = """
def begin(first, last, targets, sources, width, column, of_sources, of_targets, out):
    for e in range(first, last):
        own = load_row(of_targets, targets[e] * width + column)
        store_row(out, e * width + column, own + load_row(of_sources, sources[e] * width + column))
    return
"""
    return _of(text, block)


def _reduced(reduce: str, block: Layout) -> Function:
    """``reduce(num_edges, num_targets, targets, counts, width, column, values, out)``."""
    text = """
def reduce(num_edges, num_targets, targets, counts, width, column, values, out):
    for v in range(num_targets):
        store_row(out, v * width + column, row_full(begun))
    for e in range(num_edges):
        at = targets[e] * width + column
        value = load_row(values, e * width + column)
        if extreme:
            store_row(out, at, maximum(load_row(out, at), value * sign))
        else:
            store_row(out, at, load_row(out, at) + value)
    for v in range(num_targets):
        at = v * width + column
        if counts[v] == 0.0:
            store_row(out, at, row_full(0.0))
        elif mean:
            store_row(out, at, load_row(out, at) / counts[v])
        elif negative:
            store_row(out, at, load_row(out, at) * sign)
    return
"""
    return _of(text, block, reduce)


def _spread(reduce: str, block: Layout) -> Function:
    """``spread(num_edges, num_targets, targets, counts, width, column, values, best, share, grad, out)``.

    The gradients of all edges' values. Edges that tie in a maximum share its gradient; all of one that is NaN get NaN.
    """
    text = """
def spread(num_edges, num_targets, targets, counts, width, column, values, best, share, grad, out):
    if extreme:
        for v in range(num_targets):
            store_row(best, v * width + column, row_full(begun))
            store_row(share, v * width + column, row_full(0.0))
        for e in range(num_edges):
            at = targets[e] * width + column
            store_row(best, at, maximum(load_row(best, at), load_row(values, e * width + column) * sign))
        for e in range(num_edges):
            at = targets[e] * width + column
            own, ties = load_row(best, at), load_row(share, at)
            store_row(share, at, equal(load_row(values, e * width + column) * sign, own, ties + 1.0, ties))
        for v in range(num_targets):
            at = v * width + column
            store_row(share, at, load_row(grad, at) / load_row(share, at))
        for e in range(num_edges):
            at = targets[e] * width + column
            own = load_row(best, at)
            none = equal(own, own, row_full(0.0), own)
            found = equal(load_row(values, e * width + column) * sign, own, load_row(share, at), none)
            store_row(out, e * width + column, found)
    else:
        for e in range(num_edges):
            row = load_row(grad, targets[e] * width + column)
            if mean:
                row = row / counts[targets[e]]
            store_row(out, e * width + column, row)
    return
"""
    return _of(text, block, reduce)


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
    return _of(text, block)


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
    return _of(text, block, add=outer_sums(block), pointer_at=pointer_at)


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
    return _of('\n'.join(text), block, pointer_at=pointer_at)


def _of(text: str, block: Layout, reduce: str = 'sum', **scope: object) -> Function:
    is_extreme, is_smallest = reduce in _EXTREMES, reduce == 'min'
    return compiled(
        text.strip(), load_row=block.load_row, store_row=block.store_row, row_full=block.row_full,
        begun=-np.inf if is_extreme else 0.0, extreme=is_extreme, negative=is_smallest, mean=reduce == 'mean',
        sign=-1.0 if is_smallest else 1.0, **scope,
    )  # fmt: skip
