"""What the kernels of networks of stages on few edges do, written out for one: see `pygfuse.cpu.few_edges.stages`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from pygfuse.cpu.few_edges.pieces import (
    EXTREMES,
    checked,
    closed,
    gathered,
    opened,
    places_of,
    spread,
    turned,
    zeroed,
)
from pygfuse.cpu.few_edges.stage_blocks import begun, dropped, scattered, times, times_back, total
from pygfuse.cpu.few_edges.stage_norms import normalised, normalised_back, squared, summed, summed_back
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
from pygfuse.cpu.vectors.numbers import NUMPY_TYPES
from pygfuse.cpu.walks.edge_products import registers_of_block
from pygfuse.program.few_edge_stages import (
    Added,
    Applied,
    Dropped,
    FewEdgeStage,
    FewEdgeStages,
    Mapped,
    Multiplied,
    Normalised,
    Sum,
)

_TENSORS = 'part, step, edges, target_row, num_targets, num_sources, tensors, room'


def forward_body(network: FewEdgeStages, with_state: bool) -> Callable:
    """The kernel that gives the reduced values, unless nothing is reduced, and those of edges, if they are wanted.

    Each part takes ``step`` edges, and has a copy of the reduced values.
    """
    text = RowText(network.dtype)
    text.say('', empty=np.empty, element=NUMPY_TYPES[network.dtype])
    # each part looks at all edges, and says the same
    checked(text)
    _turned_weights(network, text, len(network.stages))
    is_reduced, width = network.reduce != 'none', network.widths[-1]
    if is_reduced:
        text.say(f'out = pointer_at(results, part * num_targets * {width})')
        opened(text, network.reduce, width)
    _blocks(text)
    _room(network, text, 'state' if with_state else '')
    _values(network, text, len(network.stages))
    if is_reduced:
        arguments = f'first, last, targets, {width}, column, held[{len(network.stages) - 1}], out'
        text.call(width, ACTIVATION_REGISTERS, functools.partial(gathered, network.reduce), arguments, indent=2)
        closed(text, network.reduce, width)
    run = text.function(f'{_TENSORS}, results, state, failed')

    def forward(part, step, edges, target_row, num_targets, num_sources, tensors, room, results, state, failed):
        run(part, step, edges, target_row, num_targets, num_sources, tensors, room, results, state, failed)

    return forward


def held_of_edge(network: FewEdgeStages) -> int:
    """How many numbers of an edge lie in memory at one time: values, gradients of the last, and what is summed."""
    return sum(_held(network))


def _held(network: FewEdgeStages) -> list[int]:
    """Widths of what is held: values after each stage, gradients of the last, what is scratched, and sums."""
    norms = sum(isinstance(stage, Normalised) for stage in network.stages)
    # a normalisation scratches two sums of an edge in backward, and is of two numbers at least
    return [*network.widths, network.widths[-1], max(network.widths), *[1] * (2 * norms)]


def holds_all(network: FewEdgeStages, with_out: bool) -> bool:
    """Whether backward holds the values of all edges, and not of a block: which edges tie is known after the last."""
    return network.reduce in EXTREMES and with_out


def _blocks(text: RowText) -> None:
    """The beginning of a loop over the blocks of a part's edges."""
    text.say('end = min(num_edges, (part + 1) * step)')
    text.say(f'for first in range(part * step, end, {BLOCK}):')
    text.say(f'last = min(end, first + {BLOCK})', 2)


def _room(network: FewEdgeStages, text: RowText, at_last: str = '', of_all: bool = False) -> None:
    """Where values after each stage go, those of the last to `at_last` if there is such: by the edge's number."""
    unit, indent = ('num_edges', 1) if of_all else (str(BLOCK), 2)
    widths = _held(network)
    shift = [''] * len(widths)
    if not of_all:
        shift = [f' + part * {BLOCK * sum(widths)} - first * {width}' for width in widths]
    count = len(network.widths)
    # what is scratched has rows of any width
    shift[count + 1] = shift[count + 1].partition(' - ')[0]
    room = [f'pointer_at(room, {place}{by})' for place, by in zip(places_of(widths, unit), shift, strict=True)]
    if at_last:
        room[count - 1] = f'pointer_at({at_last}, 0)'
    text.say(f'held = ({", ".join(room[:count])},)', indent)
    text.say(f'after_, scratch = {room[count]}, {room[count + 1]}', indent)
    norms = [i for i, stage in enumerate(network.stages) if isinstance(stage, Normalised)]
    for k, i in enumerate(norms):
        text.say(f'sums{i}, squares{i} = {room[count + 2 + 2 * k]}, {room[count + 3 + 2 * k]}', indent)


def _turned_weights(network: FewEdgeStages, text: RowText, last: int) -> None:
    for i, (stage, places) in enumerate(list(zip(network.stages, network.places, strict=True))[:last]):
        if isinstance(stage, Mapped):
            turned(text, f'turned{i}', f'tensors[{places[0]}]', stage.after, stage.before)
        elif isinstance(stage, Added) and stage.has_weight:
            turned(text, f'turned{i}', f'tensors[{places[1]}]', stage.width, stage.features)


def _values(network: FewEdgeStages, text: RowText, last: int) -> None:
    """The values of a block's edges after the first so many stages."""
    for i, (stage, places) in enumerate(list(zip(network.stages, network.places, strict=True))[:last]):
        _STAGES[type(stage)](text, i, stage, _named('tensors', places))


def _named(name: str, places: Sequence[int | None]) -> list[str]:
    """How tensors are said, or their gradients."""
    return ['None' if place is None else f'{name}[{place}]' for place in places]


def _sum(text: RowText, i: int, stage: Sum, tensors: list[str]) -> None:
    ends = f'first, last, targets, sources, {stage.width}, column, {", ".join(tensors)}, held[{i}]'
    text.call(stage.width, ACTIVATION_REGISTERS, begun, ends, indent=2)


def _mapped(text: RowText, i: int, stage: Mapped, tensors: list[str]) -> None:
    arguments = f'held[{i - 1}], first, last, {stage.before}, turned{i}, {tensors[1]}, {stage.after}, column, held[{i}]'
    text.call(stage.after, registers_of_block(), product, arguments, indent=2)


def _added(text: RowText, i: int, stage: Added, tensors: list[str]) -> None:
    more = tensors[0]
    if stage.has_weight:
        more = f'held[{i}]'
        of_features = f'{tensors[0]}, first, last, {stage.features}, turned{i}, None, {stage.width}, column, {more}'
        text.call(stage.width, registers_of_block(), product, of_features, indent=2)
    arguments = f'first, last, {stage.width}, column, held[{i - 1}], {more}, held[{i}]'
    text.call(stage.width, ACTIVATION_REGISTERS, total, arguments, indent=2)


def _multiplied(text: RowText, i: int, stage: Multiplied, tensors: list[str]) -> None:
    factors = f'first, last, sources, {stage.width}, column, {", ".join(tensors)}, {stage.features}'
    text.call(stage.width, ACTIVATION_REGISTERS, times, f'{factors}, held[{i - 1}], held[{i}]', indent=2)


def _dropped(text: RowText, i: int, stage: Dropped, tensors: list[str]) -> None:
    arguments = f'first, last, {stage.width}, column, {", ".join(tensors)}, held[{i - 1}], held[{i}]'
    text.call(stage.width, ACTIVATION_REGISTERS, dropped, arguments, indent=2)


def _applied(text: RowText, i: int, stage: Applied, tensors: list[str]) -> None:
    apply = functools.partial(application, stage.activation, False)
    arguments = f'first, last, num_edges, {stage.width}, column, held[{i - 1}], held[{i}]'
    text.call(stage.width, ACTIVATION_REGISTERS, apply, arguments, indent=2)


def _normalised(text: RowText, i: int, stage: Normalised, tensors: list[str]) -> None:
    row, values = f'first, last, {stage.width}, column', f'held[{i - 1}], sums{i}'
    text.call(stage.width, ACTIVATION_REGISTERS, summed, f'{row}, {values}', indent=2)
    values = f'{row}, {1 / stage.width!r}, {values}, squares{i}'
    text.call(stage.width, ACTIVATION_REGISTERS, squared, values, indent=2)
    arguments = f'{values}, {stage.eps!r}, {", ".join(tensors)}, held[{i}]'
    text.call(stage.width, ACTIVATION_REGISTERS, normalised, arguments, indent=2)


_STAGES = {
    Sum: _sum, Mapped: _mapped, Added: _added, Multiplied: _multiplied, Dropped: _dropped, Applied: _applied,
    Normalised: _normalised,
}  # fmt: skip


def backward_body(network: FewEdgeStages, with_out: bool, with_state: bool, wanted: tuple[bool, ...]) -> Callable:
    """The kernel that gives the gradients of the tensors that are wanted.

    Each part takes ``step`` edges, and has copies of the gradients of what is no feature of edges.

    Args:
        network: The network.
        with_out: Whether there is a gradient of the reduced values.
        with_state: Whether there is one of the values of edges.
        wanted: Which gradients are wanted, a bool for each tensor.
    """
    text = RowText(network.dtype)
    text.say('', empty=np.empty, element=NUMPY_TYPES[network.dtype])
    # each part looks at all edges, and says the same
    checked(text)
    count, is_whole = len(network.stages), holds_all(network, with_out)
    # what a map gives last is read by a maximum alone
    last = count - (not is_whole and isinstance(network.stages[-1], Mapped))
    _turned_weights(network, text, last)
    for stage, places in zip(network.stages, network.places, strict=True):
        for place, length in zip(places, _lengths(stage), strict=True):
            # each edge writes its own
            if place is not None and wanted[place] and 'num_edges' not in length:
                text.say(f'grad{place} = pointer_at(grads[{place}], part * ({length}))')
                zeroed(text, f'grad{place}', length)
            elif place is not None and wanted[place]:
                text.say(f'grad{place} = pointer_at(grads[{place}], 0)')
    _ones(network, text)
    if is_whole:
        _room(network, text, of_all=True)
        _blocks(text)
        _values(network, text, last)
        _last_gradients(network, text, '0, num_edges', with_out, with_state, 1)
        _blocks(text)
    else:
        _blocks(text)
        _room(network, text)
        _values(network, text, last)
        _last_gradients(network, text, 'first, last', with_out, with_state, 2)
    after = 'after_'
    for i in reversed(range(count)):
        stage, places = network.stages[i], network.places[i]
        of_tensors = ['None' if p is None or not wanted[p] else f'grad{p}' for p in places]
        after = _ADJOINTS[type(stage)](text, i, stage, _named('tensors', places), of_tensors, after)
        if not any(wanted[p] for earlier in network.places[:i] for p in earlier if p is not None):
            break
    run = text.function(f'{_TENSORS}, of_rows, of_out, of_state, nothing, grads, failed')

    def backward(
        part, step, edges, target_row, num_targets, num_sources, tensors, room, of_rows, of_out, of_state, nothing,
        grads, failed,
    ):  # fmt: skip
        run(
            part, step, edges, target_row, num_targets, num_sources, tensors, room, of_rows, of_out, of_state, nothing,
            grads, failed,
        )  # fmt: skip

    return backward


def _ones(network: FewEdgeStages, text: RowText) -> None:
    """What rows are multiplied with to sum them, if any are."""
    widths = [stage.width for stage in network.stages if isinstance(stage, Multiplied) and stage.features == 1]
    if widths:
        text.say(f'ones = empty({max(widths)}, element)')
        text.say(f'for place in range({max(widths)}):')
        text.say('ones[place] = 1.0', 2)


def _last_gradients(
    network: FewEdgeStages, text: RowText, edges: str, with_out: bool, with_state: bool, indent: int
) -> None:
    """The gradients of the values of these edges after the last stage, as ``after_``."""
    width, values = network.widths[-1], f'held[{len(network.stages) - 1}]'
    if with_out:
        text.say(f'best, share = pointer_at(of_rows, 0), pointer_at(of_rows, num_targets * {width})', indent)
        arguments = f'{edges}, num_targets, targets, counts, {width}, column, {values}, best, share, of_out, after_'
        text.call(width, ACTIVATION_REGISTERS, functools.partial(spread, network.reduce), arguments, indent=indent)
    if with_state:
        more = 'after_' if with_out else 'None'
        arguments = f'{edges}, {width}, column, of_state, {more}, after_'
        text.call(width, ACTIVATION_REGISTERS, total, arguments, indent=indent)


def _lengths(stage: FewEdgeStage) -> tuple[str, ...]:
    """How many numbers the tensors of a stage hold."""
    if isinstance(stage, Sum):
        return tuple(f'{rows} * {stage.width}' for rows in ('num_sources', 'num_targets', 'num_edges'))
    if isinstance(stage, Mapped):
        return str(stage.after * stage.before), str(stage.after)
    if isinstance(stage, Added):
        return f'num_edges * {stage.features}', str(stage.width * stage.features)
    if isinstance(stage, Multiplied):
        return f'num_sources * {stage.width}', f'num_edges * {stage.features}'
    if isinstance(stage, Dropped):
        return 'num_edges', str(2 * stage.width)
    return (str(stage.width), str(stage.width)) if isinstance(stage, Normalised) else ()


def _of_sum(text: RowText, i: int, stage: Sum, tensors: list[str], grads: list[str], after: str) -> str:
    arguments = f'first, last, targets, sources, {stage.width}, column, {after}, {", ".join(grads)}'
    text.call(stage.width, ACTIVATION_REGISTERS, scattered, arguments, indent=2)
    return after


def _of_mapped(text: RowText, i: int, stage: Mapped, tensors: list[str], grads: list[str], after: str) -> str:
    _outer(text, stage.before, stage.after, f'held[{i - 1}]', after, grads[0])
    text.call(stage.after, 1, totals, f'first, last, {stage.after}, column, {after}, {grads[1]}, 0', indent=2)
    # the gradient takes the place of the values
    before = f'held[{i - 1}]'
    arguments = f'{after}, first, last, {stage.after}, {tensors[0]}, None, {stage.before}, column, {before}'
    text.call(stage.before, registers_of_block(), product, arguments, indent=2)
    return before


def _outer(text: RowText, before: int, after: int, values: str, grad: str, of_weight: str) -> None:
    arguments = f'first, last, {before}, {after}, column, {values}, {grad}, {of_weight}, 0, nothing'
    text.call(before, registers_of_block(), outer, arguments, indent=2)


def _of_added(text: RowText, i: int, stage: Added, tensors: list[str], grads: list[str], after: str) -> str:
    if not stage.has_weight:
        if grads[0] != 'None':
            arguments = f'first, last, {stage.width}, column, {after}, None, {grads[0]}'
            text.call(stage.width, ACTIVATION_REGISTERS, total, arguments, indent=2)
        return after
    _outer(text, stage.features, stage.width, tensors[0], after, grads[1])
    if grads[0] != 'None':
        arguments = f'{after}, first, last, {stage.width}, {tensors[1]}, None, {stage.features}, column, {grads[0]}'
        text.call(stage.features, registers_of_block(), product, arguments, indent=2)
    return after


def _of_multiplied(text: RowText, i: int, stage: Multiplied, tensors: list[str], grads: list[str], after: str) -> str:
    width, of_source, of_features = stage.width, *grads
    # of one number an edge, its row's are summed
    is_one = stage.features == 1 and width > 1 and of_features != 'None'
    factors = f'first, last, sources, {width}, column, {", ".join(tensors)}, {stage.features}, held[{i - 1}], {after}'
    rows = f'pointer_at(scratch, -first * {width})' if is_one else of_features
    text.call(width, ACTIVATION_REGISTERS, times_back, f'{factors}, {of_source}, {rows}', indent=2)
    if is_one:
        arguments = f'{rows}, first, last, {width}, ones, None, 1, column, {of_features}'
        text.call(1, 1, product, arguments, indent=2)
    return after


def _of_dropped(text: RowText, i: int, stage: Dropped, tensors: list[str], grads: list[str], after: str) -> str:
    arguments = f'first, last, {stage.width}, column, {", ".join(tensors)}, {after}, {after}'
    text.call(stage.width, ACTIVATION_REGISTERS, dropped, arguments, indent=2)
    return after


def _of_applied(text: RowText, i: int, stage: Applied, tensors: list[str], grads: list[str], after: str) -> str:
    back = functools.partial(adjoint_of, stage.activation, False)
    arguments = f'first, last, num_edges, {stage.width}, column, held[{i - 1}], {after}'
    text.call(stage.width, ACTIVATION_REGISTERS, back, arguments, indent=2)
    return after


def _of_normalised(text: RowText, i: int, stage: Normalised, tensors: list[str], grads: list[str], after: str) -> str:
    row, values = f'first, last, {stage.width}, column, {1 / stage.width!r}', f'held[{i - 1}], sums{i}, squares{i}'
    values = f'{row}, {values}, {stage.eps!r}, {tensors[0]}'
    # there may be fewer edges than a block has
    found = f'{after}, pointer_at(scratch, -first), pointer_at(scratch, last - 2 * first)'
    text.call(stage.width, ACTIVATION_REGISTERS, summed_back, f'{values}, {found}', indent=2)
    arguments = f'{values}, {found}, {", ".join(grads)}'
    text.call(stage.width, ACTIVATION_REGISTERS, normalised_back, arguments, indent=2)
    return after


_ADJOINTS = {
    Sum: _of_sum, Mapped: _of_mapped, Added: _of_added, Multiplied: _of_multiplied, Dropped: _of_dropped,
    Applied: _of_applied, Normalised: _of_normalised,
}  # fmt: skip
