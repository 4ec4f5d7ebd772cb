"""The walk that writes the weights of edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.codegen.parts import row_reader, rows_reader
from pygfuse.cuda.walks.arguments import WEIGHTS
from pygfuse.cuda.walks.edges import Batch, tile_reader
from pygfuse.program import vocabulary
from pygfuse.program.program import BoundProgram


def weights_body(bound: BoundProgram, lanes: Any) -> Callable:
    """The walk that writes each edge's weight, before dropout, at the edge's id; of a softmax it reads the statistics.

    Args:
        bound: A program with a score.
        lanes: The instructions of a lane.
    """
    softmax, exp, above, store_heads = bound.softmax, vocabulary.exp, lanes.above, lanes.store_heads
    batch = Batch(lanes, bound)
    step, places, load_edges, score = batch.step, batch.places(), batch.loaded(), batch.scored()
    load_heads, load_row, rows_of, row_at = lanes.load_heads, lanes.load_row, rows_reader(lanes), row_reader(lanes)
    team_number, team_count, subteam_number, tile_of = (
        lanes.team_number, lanes.team_count, lanes.subteam_number, tile_reader(lanes),
    )  # fmt: skip

    @lanes.inlined
    def write(edge, found, top, factor, result, total_heads, head):
        if softmax:
            found = exp(above(found, top[0])) * factor[0]
        store_heads(result, edge[1] * total_heads + head, found, edge[0])
        return 0

    write_all = batch.mapped(write, ['edges', 'found'], ['top', 'factor', 'result', 'total_heads', 'head'])

    @WEIGHTS.of
    def weights(parts, walked, operands, sizes, total_heads, width, statistics, result):
        subteam, (_, head, channel) = subteam_number(), tile_of(walked.tiles)
        parameter_rows = load_row(operands.parameters, channel)
        head_parameters = load_heads(operands.parameter_heads, head)
        for piece in range(team_number(), parts, team_count()):
            first_row, end_row, first_edge, last_edge = rows_of(piece, walked.bounds, walked.indptr)
            for v in range(first_row, end_row):
                begin, end, _, _ = row_at(v, piece, walked.indptr, first_edge, last_edge)
                own_heads = load_heads(operands.resident_heads, v * total_heads + head)
                own_row = load_row(operands.resident_channels, v * width + channel)
                top = load_heads(statistics, 2 * v * total_heads + head)
                factor = load_heads(statistics, (2 * v + 1) * total_heads + head)
                for q in range(begin, end, step):
                    edges = load_edges(
                        places(q + subteam), end, walked, operands, sizes, total_heads, width, head, channel
                    )
                    found = score(edges, own_heads, own_row, head_parameters, parameter_rows, operands.scalars)
                    write_all(edges, found, top, factor, result, total_heads, head)

    return weights
