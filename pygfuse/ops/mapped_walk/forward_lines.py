"""A call of a form forward, written out as lines: operands, walk, what is added, and the map of the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch

from pygfuse.ops.mapped_walk.form import Part
from pygfuse.ops.mapped_walk.map_lines import SUMMED, MapLines, is_there, rows_of
from pygfuse.ops.mapped_walk.operand_lines import OperandLines, arguments_of
from pygfuse.ops.mapped_walk.shaped import Kind, Shaped
from pygfuse.ops.nodes.product_lines import matrix
from pygfuse.program.program import TARGET

# what calls of the edges bring, before all else
OF_EDGES = 'edge_index', 'target_row', 'num_sources', 'num_targets', 'loops', 'itself'


class Forward(NamedTuple):
    """A call forward, written out.

    Attributes:
        run: ``run(edge_index, ..., itself, source, target, edge, w0, b0, ..., rest_0, ...)``: the result, and a tuple
            of what is kept.
        kept: The names of the latter.
        rooms: Which of these are memory that was reserved, with what lies there.
        hands_out: Whether the result is what backward reads.
    """

    run: Callable[..., tuple]
    kept: tuple[str, ...]
    rooms: Mapping[str, Sequence[tuple[str, str]]]
    hands_out: bool


def written_forward(shaped: Shaped, kind: Kind, kept: Collection[str]) -> Forward:
    """Writes a call forward.

    Args:
        shaped: The calls.
        kind: What else they have in common.
        kept: The names of what backward reads beside what it is given: ``out`` and ``statistics`` of the walk,
            ``summed``, the result before it is mapped, and ``tensor_0``, ..., operands.
    """
    return _Forward(shaped, kind, kept).written()


class _Forward:
    def __init__(self, shaped: Shaped, kind: Kind, kept: Collection[str]) -> None:
        self._shaped, self._kind, self._kept = shaped, kind, kept
        form, shape = shaped.form, shaped.shape
        self._lines = MapLines(shape, kind.of, shaped.width_of_sums)
        self._added = [part for part in shaped.added if is_there(part, shape)]
        # what backward reads is not written over
        self._in_place = form.sums_heads or not shaped.plan.reads_output
        is_new = form.sums_heads or (not self._in_place and (self._added or shape.added))
        self._is_out = form.mapped_by is None and not is_new

    def written(self) -> Forward:
        shaped, lines, form = self._shaped, self._lines, self._shaped.form
        operands = OperandLines(lines, form, shaped.num_rest)
        operands.make(self._kept)
        operands.multiply()
        operands.take()
        operands.derive()
        operands.weigh()
        # what is divided by how many edges attain an extreme is a tensor
        rooms = {'statistics': self._room_of('statistics')} if shaped.plan.bound.softmax else {}
        if not self._is_out and not shaped.shape.added:
            # which is what is mapped, too, where nothing is added to a new tensor
            is_summed = not form.sums_heads and (self._in_place or not self._added)
            rooms['out'] = self._room_of('out', *((SUMMED,) if is_summed else ()))
        shaped.walks_in(lines, self._kind).write_forward(lines, self._kind.sharing, rooms=rooms)
        self._add()
        self._map()
        kept = self._names_of_kept()
        arguments = ', '.join([*OF_EDGES, *arguments_of(shaped.shape, shaped.num_rest)])
        run = lines.function(arguments, f'result, ({"".join(f"{name}, " for name in kept)})', {'add': torch.add})
        there = {name: contents for name, contents in lines.rooms.items() if name in kept}
        return Forward(run, kept, there, self._is_out and 'out' in self._kept)

    def _add(self) -> None:
        """Writes ``summed``: what the walk gives, with what is added to it."""
        lines, form, shape, width = self._lines, self._shaped.form, self._shaped.shape, self._shaped.width_of_sums
        begun, room = 'out', None
        if form.mapped_by is not None and not shape.added:
            room = self._room_of(SUMMED)
        if form.sums_heads:
            begun = 'of_heads'
            if room is None:
                lines.prepare(f'{begun} = source.new_empty(num_targets, {width})')
            else:
                lines.reserve(begun, f'num_targets * {width}', room)
            lines.sum_of_blocks('num_targets', form.heads, width, 'out', matrix(begun, width))
        if self._added:
            lines.add_up(SUMMED, self._added, width, begun, self._in_place, room)
        else:
            lines.rename(SUMMED, begun)
        if shape.added:
            target = rows_of(TARGET, shape)
            is_own = self._in_place or self._added
            to = f'{SUMMED}.add_(' if is_own else f'{SUMMED} = add({SUMMED}, '
            lines.say(f'{to}{target}, alpha=itself)')

    def _map(self) -> None:
        """Writes ``result``."""
        lines, form = self._lines, self._shaped.form
        if form.mapped_by is None:
            lines.prepare(f'result = {SUMMED}')
            return
        parts = [Part(SUMMED, form.mapped_by)]
        parts += [] if form.root is None else [Part(TARGET, form.root, biased=False)]
        outputs = lines.weight(parts[0])[1]
        lines.add_up('result', parts, outputs)

    def _room_of(self, *names: str) -> str:
        return 'kept' if any(name in self._kept for name in names) else 'rows'

    def _names_of_kept(self) -> tuple[str, ...]:
        """The tensors that hold what is kept."""
        self._lines.wait()
        there = [name for name in self._lines.rooms if name.startswith('kept')]
        return (*there, *[name for name in self._kept if not self._lines.is_reserved(name)])
