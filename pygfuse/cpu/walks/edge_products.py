"""Features of edges times a weight within a walk: products of a chunk of edges at a time, which are never stored.

A chunk is a run of edges in the order of the walk. Its products lie on the stack, so in a cache, until those of the
next chunk take their place; the gradients that an adjoint has for them lie beside them, and become gradients of
features and weight once the chunk is done. Several edges are multiplied side by side, so that each row of the weight
that is read serves them all, and each sum runs from the first feature to the last whatever chunk its edge is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pygfuse.cpu.translation.functions import Function, inlined
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import alignment, place_at, pointer_at, prefetch, room_for
from pygfuse.cpu.walks.inlining import compiled

CHUNK_BYTES = 2**14
MOST_EDGES = 64
CACHE_LINE = 64
# edges, or rows of a weight's gradient, whose sums are in registers together; those of gradients of features are one
# register each
TOGETHER, TOGETHER_OF_FEATURES = 6, 8


@inlined
def row_of(source, row, size):
    """Where a row begins: in the first array or, behind its end, in the second."""
    place, length = row * size, len(source[0])
    return pointer_at(source[0], place) if place < length else pointer_at(source[1], place - length)


def registers_of_block() -> int:
    """How many registers a block takes, of which `TOGETHER` are summed side by side."""
    # AVX-512 has 32 registers, the others 16
    return 4 if simd.register_bytes() == 64 else 2


class EdgeProducts:
    """What walks do with the operands of edges that are features times a weight.

    Args:
        layout: What is held of a row.
        count: Number of such operands.
        derived: Those that the adjoint gives gradients for: their positions among the operands.
        of_features: Those of `derived` whose features have a gradient: their positions in `derived`.

    Attributes:
        room: ``room()``: memory for a chunk's products, as a tuple.
        gradient_room: ``room()``: the same for the gradients of those derived.
        fill: ``fill(operands, edge_id, first, last_edge, width, channel, formed)``: makes the products of the chunk
            that begins with edge `first`, and returns the edge behind its last.
        differentiate: ``differentiate(gradients, operands, grads, panels, edge_id, first, count, width, channel, piece,
            tiles, tile)``: what the gradients of a chunk's first `count` edges give for weights, added to the sums of
            this piece of the work, and for features, of this tile of channels.
    """

    def __init__(
        self, layout: Layout, count: int, derived: Sequence[int] = (), of_features: Sequence[int] = ()
    ) -> None:
        self.width = layout.heads * layout.channels
        self._layout = layout
        row_bytes = self.width * alignment(layout.element)
        edges = max(layout.step, min(MOST_EDGES, CHUNK_BYTES // row_bytes))
        self.room = self._rooms(count, edges)
        self.gradient_room = self._rooms(len(derived), edges)
        self.fill = self._filler(count, edges)
        self.differentiate = self._differentiator(derived, of_features)

    def _rooms(self, count: int, edges: int) -> Function:
        room = room_for(self._layout.element, edges * self.width)
        return compiled(f'def rooms():\n    return ({"room(), " * count})', room=room)

    def _blocks(self) -> Iterator[tuple[Layout, str]]:
        """The channels of a row as many as registers hold, and the range of the first ones of such blocks."""
        element = self._layout.element
        held = registers_of_block() * simd.register_bytes() // alignment(element)
        whole = self.width // held * held
        if whole:
            yield Layout(element, 1, held), f'range(0, {whole}, {held})'
        if whole < self.width:
            yield Layout(element, 1, self.width - whole), f'range({whole}, {self.width}, {self.width - whole})'

    def _filler(self, count: int, edges: int) -> Function:
        lines, scope = [f'    last = min(first + {edges}, last_edge)'], {}
        for b, (block, starts) in enumerate(self._blocks() if count else ()):
            scope[f'multiply{b}'] = row_products(block)
            lines.append(f'    for start in {starts}:')
            lines += [
                f'        multiply{b}(operands.edge_features[{i}], operands.edge_weights[{i}], '
                f'len(operands.edge_weights[{i}]) // width, width, channel + start, edge_id, first, last, last_edge, '
                f'formed[{i}], {self.width}, start)'
                for i in range(count)
            ]
        text = ['def fill(operands, edge_id, first, last_edge, width, channel, formed):', *lines, '    return last']
        return compiled('\n'.join(text), **scope)

    def _differentiator(self, derived: Sequence[int], of_features: Sequence[int]) -> Function:
        lines, scope = [], {}
        for b, (block, starts) in enumerate(self._blocks() if derived else ()):
            scope[f'outer{b}'] = outer_sums(block)
            lines.append(f'    for start in {starts}:')
            lines += [
                f'        outer{b}(operands.edge_features[{i}], edge_id, first, count, gradients[{j}], {self.width}, '
                f'start, grads.grad_weights[{j}], piece * len(operands.edge_weights[{i}]) + channel + start, '
                f'len(operands.edge_weights[{i}]) // width, width)'
                for j, i in enumerate(derived)
            ]
        if of_features:
            scope['inner'] = _inner(self._layout, self.width)
        lines += [
            f'    inner(gradients[{j}], panels[{k}], edge_id, first, count, width, channel, grads.grad_features[{k}], '
            f'len(operands.edge_weights[{derived[j]}]) // width, tiles, tile)'
            for k, j in enumerate(of_features)
        ]
        header = 'gradients, operands, grads, panels, edge_id, first, count, width, channel, piece, tiles, tile'
        return compiled('\n'.join([f'def differentiate({header}):', *lines, '    return']), **scope)


def repeated(line: str, count: int = TOGETHER) -> list[str]:
    """A line for each of what is worked on side by side, with its number for ``#``."""
    return [line.replace('#', str(i)) for i in range(count)]


def row_products(block: Layout) -> Function:
    """``multiply(source, weight, size, width, column, edge_id, first, last, last_edge, out, stride, place)``.

    Writes ``source[edge_id[q]] @ weight[:, column + c]`` to ``out[(q - first) * stride + place + c]`` for each q from
    `first` to `last` and the block's c. What is read next, before `last_edge`, is asked for.
    """
    line = CACHE_LINE // alignment(block.element)
    text = [
        'def multiply(source, weight, size, width, column, edge_id, first, last, last_edge, out, stride, place):',
        f'    for q in range(first, last, {TOGETHER}):',
        # of the last edge, where there are no more
        *repeated('        q# = min(q + #, last - 1)'),
        *repeated('        row# = row_of(source, place_at(edge_id, q#), size)'),
        *repeated(f'        next# = row_of(source, place_at(edge_id, min(q + # + {TOGETHER}, last_edge - 1)), size)'),
        f'        for d in range(0, size, {line}):',
        *repeated('            prefetch(next#, d)'),
        *repeated('        sum# = row_full(0.0)'),
        '        for d in range(size):',
        '            values = load_row(weight, d * width + column)',
        *repeated('            sum# = sum# + row#[d] * values'),
        *repeated('        store_row(out, (q# - first) * stride + place, sum#)'),
    ]
    return _of(text, block)


def outer_sums(block: Layout) -> Function:
    """``add(source, edge_id, first, count, values, stride, place, sums, base, size, width)``.

    Adds up ``source[edge_id[first + k], d] * values[k * stride + place + c]`` over k for each d and the block's c, and
    adds that to ``sums[base + d * width + c]``.
    """
    text = [
        'def add(source, edge_id, first, count, values, stride, place, sums, base, size, width):',
        f'    for d in range(0, size, {TOGETHER}):',
        *repeated('        d# = min(d + #, size - 1)'),
        *repeated('        sum# = row_full(0.0)'),
        '        for k in range(count):',
        '            row = row_of(source, place_at(edge_id, first + k), size)',
        '            other = load_row(values, k * stride + place)',
        *repeated('            sum# = sum# + row[d#] * other'),
        # the last row may be there several times: all are read before one is written
        *repeated('        sum# = sum# + load_row(sums, base + d# * width)'),
        *repeated('        store_row(sums, base + d# * width, sum#)'),
    ]
    return _of(text, block)


def _inner(layout: Layout, width: int) -> Function:
    """``inner(gradients, panels, edge_id, first, count, width, channel, grad_features, size, tiles, tile)``.

    The weight comes in panels of as many features as a register holds (`pygfuse.cpu.vectors.panels`).
    """
    lanes = simd.register_bytes() // alignment(layout.element)
    line, each = Layout(layout.element, 1, lanes), TOGETHER_OF_FEATURES
    text = [
        'def inner(gradients, panels, edge_id, first, count, width, channel, grad_features, size, tiles, tile):',
        f'    for k in range(0, count, {each}):',
        *repeated('        k# = min(k + #, count - 1)', each),
        *repeated('        row# = row_of(grad_features, place_at(edge_id, first + k#), tiles * size)', each),
        f'        for d in range(0, size, {lanes}):',
        '            panel = d * width + channel * ' + str(lanes),
        *repeated('            sum# = edges_full(0.0)', each),
        f'            for c in range({width}):',
        f'                values = load_edges(panels, panel + c * {lanes})',
        *repeated(f'                sum# = sum# + gradients[k# * {width} + c] * values', each),
        *repeated('            store_some_edges(row#, tile * size + d, sum#, size - d)', each),
    ]
    return _of(text, line)


def _of(text: Sequence[str], block: Layout) -> Function:
    names = ('load_row', 'store_row', 'row_full', 'load_edges', 'store_some_edges', 'edges_full')
    scope: dict[str, Callable] = {name: getattr(block, name) for name in names}
    return compiled('\n'.join(text), row_of=row_of, place_at=place_at, prefetch=prefetch, **scope)
