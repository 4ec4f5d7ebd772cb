"""Batches of edges: what a walk loads of each, and functions applied to all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pygfuse.program.adjoint import BY_TARGET
from pygfuse.program.program import BoundProgram

# what `edge_loader` takes after the place of an edge
EDGE_ARGUMENTS = ('end', 'walked', 'operands', 'sizes', 'total_heads', 'width', 'head', 'channel')
# what belongs to the resident node and to nobody
RESIDENT = ('own_heads', 'own_row', 'head_parameters', 'parameters', 'scalars')


def tile_reader(lanes: Any) -> Callable:
    """``tile_of(tiles)``: the number of this lane's tile, and its first head and channel."""
    place_at, tile_number = lanes.place_at, lanes.tile_number

    @lanes.inlined
    def tile_of(tiles):
        tile = tile_number()
        return tile, place_at(tiles, 2 * tile), place_at(tiles, 2 * tile + 1)

    return tile_of


class Batch:
    """The edges that a subteam of lanes has in flight, and functions applied to all of them.

    Args:
        lanes: The instructions of a lane.
        bound: The program.
    """

    def __init__(self, lanes: Any, bound: BoundProgram) -> None:
        self.lanes, self.bound, self.size, self.subteams = lanes, bound, lanes.layout.batch, lanes.layout.subteams

    @property
    def step(self) -> int:
        """Edges that a team has in flight."""
        return self.size * self.subteams

    def places(self) -> Callable:
        """``places(q)``: the places of the edges, the first being `q`."""
        items = ''.join(f'q + {k * self.subteams}, ' for k in range(self.size))
        return self.lanes.compiled(f'def places(q):\n    return ({items})')

    def mapped(self, function: Callable, each: Sequence[str], shared: Sequence[str] = ()) -> Callable:
        """`function` of every edge, as a tuple.

        Args:
            function: Takes one item of every argument in `each`, then the arguments `shared`.
            each: Names of arguments that are tuples of one item an edge.
            shared: Names of the others.
        """
        calls = ''.join(
            f'function({", ".join([*(f"{name}[{k}]" for name in each), *shared])}), ' for k in range(self.size)
        )  # fmt: skip
        header = ', '.join([*each, *shared])
        return self.lanes.compiled(f'def mapped({header}):\n    return ({calls})', function=function)

    def folded(self, function: Callable, each: Sequence[str], shared: Sequence[str] = ()) -> Callable:
        """A state after `function` of it and of every edge, in the order of edges; see `mapped`."""
        calls = [
            f'    state = function({", ".join(["state", *(f"{name}[{k}]" for name in each), *shared])})'
            for k in range(self.size)
        ]  # fmt: skip
        header = ', '.join(['state', *each, *shared])
        text = '\n'.join([f'def folded({header}):', *calls, '    return state'])
        return self.lanes.compiled(text, function=function)

    def loaded(self) -> Callable:
        """``load_edges(places, ...)``: the edges at these places, see `edge_loader`."""
        return self.mapped(edge_loader(self.lanes, self.bound), ['places'], EDGE_ARGUMENTS)

    def scored(self) -> Callable:
        """``score(edges, ...)``: the scores of loaded edges into the row's target, see `edge_scorer`."""
        return self.mapped(edge_scorer(self.lanes, self.bound, BY_TARGET), ['edges'], RESIDENT)


def edge_row_loader(lanes: Any, bound: BoundProgram) -> Callable:
    """``load(operands, sizes, edge, width, channel)``: the channels operands of an edge, as a tuple.

    Operands that are features times a weight are multiplied out here and never stored; `sizes` says how many features.
    """
    load_row, load_number, row_full = lanes.load_row, lanes.load_number, lanes.row_full

    @lanes.inlined
    def product(features, weight, size, edge, width, channel):
        result = row_full(0.0)
        for d in range(size):
            result = result + load_number(features, edge * size + d) * load_row(weight, d * width + channel)
        return result

    items = [f'load_row(operands.edge_rows[{i}], edge * width + channel), ' for i in range(len(bound.edge_rows))]
    items += [
        f'product(operands.edge_features[{i}], operands.edge_weights[{i}], sizes[{i}], edge, width, channel), '
        for i in range(len(bound.edge_products))
    ]
    text = f'def load(operands, sizes, edge, width, channel):\n    return ({"".join(items)})'
    return lanes.compiled(text, load_row=load_row, product=product)


def edge_loader(lanes: Any, bound: BoundProgram) -> Callable:
    """``load(q, ...)``: the edge at a place: whether it is one, its id and all its operands.

    Behind the end of a row it is the row's last edge again, which costs no memory traffic, and parts no lanes.
    """
    place_at, load_heads, load_row, load_scalars = (
        lanes.place_at, lanes.load_heads, lanes.load_row, lanes.load_scalars,
    )  # fmt: skip
    load_edge_row = edge_row_loader(lanes, bound)

    @lanes.inlined
    def load(q, end, walked, operands, sizes, total_heads, width, head, channel):
        at = min(q, end - 1)
        u, e = place_at(walked.gathered, at), place_at(walked.edge_id, at)
        heads = load_heads(operands.gathered_heads, u * total_heads + head)
        row = load_row(operands.gathered_channels, u * width + channel)
        on_edge = load_heads(operands.edge_heads, e * total_heads + head) + load_scalars(operands.edge_scalars, e)
        edge_row = load_edge_row(operands, sizes, e, width, channel)
        return q < end, e, heads, row, on_edge, edge_row

    return load


def edge_scorer(lanes: Any, bound: BoundProgram, sides: dict[str, str]) -> Callable:
    """``score(edge, ...)``: the score of a loaded edge, for each head."""
    score, heads_full = lanes.compiled(bound.text(bound.score, 'score', sides)), lanes.heads_full

    @lanes.inlined
    def score_edge(edge, own_heads, own_row, head_parameters, parameters, scalars):
        _, _, other_heads, other, on_edge, row = edge
        found = score(own_heads, own_row, other_heads, other, on_edge, row, head_parameters, parameters, scalars)
        return heads_full(0.0) + found

    return score_edge
