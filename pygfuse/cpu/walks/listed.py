"""What the walks along few edges as they come have in common: the edges listed, and their scores.

One part of the work has all edges, times a tile of the row. It lists them first: their ends and ids, with self-loops
put in, on memory of its own that holds few numbers an edge. Rows of nodes are added to where they lie. They are few
enough for a core's caches, so that the order of edges costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Whole
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.vectors.memory import numbers_at
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.walks.ends import ends_of, is_any_outside
from pygfuse.cpu.walks.instructions import Instructions
from pygfuse.cpu.walks.score import edge_scorer
from pygfuse.program.adjoint import BY_TARGET
from pygfuse.program.program import BoundProgram

# what `list_edges` tells of an edge that names a node which is not there
OUT_OF_RANGE = -1
number_at = numbers_at(ELEMENT_TYPES[torch.int64])


class ListedEdges(NamedTuple):
    """Tiles of the row, the two rows of edges, which of them holds targets, the numbers of nodes and, not negative,
    of self-loops put in; and the address where the number of edges walked is written."""

    tiles: Tensor
    edges: Tensor
    target_row: int
    num_targets: int
    num_sources: int
    loops: int
    num_walked: int


class Walked(NamedTuple):
    """The ends and ids of edges as `edge_scorer` takes them."""

    gathered: Tensor
    edge_id: Tensor


# the first arguments of both walks, behind their share of the work
FEW, OPERANDS = Whole('few', ListedEdges), Whole('operands', shared.Operands)


@inlined
def list_edges(few):
    """The targets, sources and ids of the edges that are walked, how many there are in all and at each target; in all
    `OUT_OF_RANGE`, where one names a node that is not there."""
    of_targets, of_sources, num_edges = ends_of(few.edges, few.target_row)
    most = num_edges + max(few.loops, 0) + 1
    targets, sources, ids = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    degrees = np.empty(few.num_targets + 1, np.int64)
    count = 0
    for edge in range(num_edges):
        target, source = of_targets[edge], of_sources[edge]
        targets[count], sources[count], ids[count] = target, source, edge
        # what is dropped is written over
        count += few.loops < 0 or target != source
    for v in range(few.loops):
        targets[count], sources[count], ids[count] = v, v, num_edges + v
        count += 1
    if is_any_outside(of_targets, of_sources, num_edges, few.num_targets, few.num_sources):
        count = OUT_OF_RANGE
    else:
        for v in range(few.num_targets):
            degrees[v] = 0
        for q in range(count):
            degrees[targets[q]] += 1
    number_at(few.num_walked)[0] = count
    return targets, sources, ids, degrees, count


def list_scorer(bound: BoundProgram, layout: Instructions) -> Callable:
    """``score(q, count, ...)``: of the edges that are scored side by side from `q` on, the scores, the values of heads
    or the row of their targets, and the values of sources and edges that they came from."""
    score, of_heads = edge_scorer(bound, layout, BY_TARGET), bound.score_is_of_heads
    gather_edges, load_row = layout.gather_edges, layout.load_row

    @inlined
    def score_edges(
        q, count, targets, sources, ids, operands, head_parameters, parameter_rows, total_heads, width, head, channel,
        formed, chunk_first,
    ):  # fmt: skip
        if of_heads:
            own_heads, own_row = gather_edges(operands.resident_heads, targets, q, count, total_heads, head), ()
        else:
            own_heads, own_row = (), load_row(operands.resident_channels, targets[q] * width + channel)
        found, others, on_edges = score(
            q, count, Walked(sources, ids), operands, own_heads, own_row, head_parameters, parameter_rows, total_heads,
            width, head, channel, (), count, formed, chunk_first,
        )  # fmt: skip
        return found, own_heads, own_row, others, on_edges

    return score_edges
