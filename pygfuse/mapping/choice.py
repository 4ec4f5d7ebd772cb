"""The choice among mappings: what is forced, else what was measured, else what the cost model says.

Where `pygfuse.group_sizes` names a chooser, that decides how much work a part holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch

from pygfuse._lib.modes import changed, modes
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping import records
from pygfuse.mapping.cost_model import modelled, scatter_cost, sorting_cost, walk_cost
from pygfuse.mapping.group_sizes.chooser import with_group_size
from pygfuse.mapping.mapping import SCATTER, VERTEX_BALANCED, Mapping, forced
from pygfuse.mapping.records import Shape
from pygfuse.program.program import SOURCE, TARGET


def used_once() -> contextlib.AbstractContextManager[None]:
    """Says that graphs met for the first time within a ``with`` block will not be met again.

    Their edges are then summed without being sorted where that is estimated to be cheaper: for few channels, in layers
    that sum or average without softmax. The backward pass of such a call does the same, wherever it runs.

    Example:
        >>> import torch
        >>> from pygfuse.conv import SAGEConv
        >>> conv, x = SAGEConv(8, 8), torch.randn(100, 8)
        >>> with used_once():
        ...     conv(x, torch.randint(100, (2, 500))).shape
        torch.Size([100, 8])
    """
    return changed(used_once=True)


@contextlib.contextmanager
def recorded() -> Iterator[set[Shape]]:
    """Collects the shapes of all graphs that are walked by rows within a ``with`` block."""
    shapes: set[Shape] = set()
    with changed(shapes=shapes):
        yield shapes


def mapping_for(csr: Csr, row_bytes: int) -> Mapping:
    """The mapping of a walk by rows.

    Args:
        csr: The edges by row.
        row_bytes: Bytes of a row of channels.
    """
    said = modes()
    shapes, chosen = said.shapes, said.mapping
    if shapes is not None:
        shapes.add(Shape.of(csr))
    if chosen is None:
        chosen = csr.memo.get_or_make(
            ('mapping', row_bytes, records.TABLE.generation, torch.get_num_threads()),
            lambda: records.mapping_of(Shape.of(csr)) or modelled(Shape.of(csr), row_bytes),
        )
        if said.group_sizes is not None:
            chosen = with_group_size(chosen, csr, row_bytes)
    return dataclasses.replace(chosen, balance=VERTEX_BALANCED) if chosen.balance == SCATTER else chosen


def choose(graph: Graph, side: str, row_bytes: int, softmax: bool, reduce: str) -> tuple[Csr | Coo, Mapping]:
    """The edges that a walk by rows takes, sorted or not, and the mapping.

    Args:
        graph: The graph.
        side: Whose rows are walked: those of targets or of sources.
        row_bytes: Bytes of a row of channels.
        softmax: Whether the weights of a target's edges are normalised by softmax.
        reduce: How the edges of a target are reduced.
    """
    coo = unsorted(graph, row_bytes, softmax, reduce)
    if coo is not None:
        return (coo if side == TARGET else coo.transposed()), Mapping(SCATTER)
    csr = graph.csc if side == SOURCE else graph.csr
    return csr, mapping_for(csr, row_bytes)


def unsorted(graph: Graph, row_bytes: int, softmax: bool, reduce: str) -> Coo | None:
    """The edges as they came, if they are summed without being sorted; see `choose`."""
    if graph.is_sorted or softmax or reduce not in ('sum', 'mean'):
        return None
    chosen = forced()
    if chosen is not None:
        return graph.unsorted() if chosen.balance == SCATTER else None
    if modes().used_once:
        graph.reused = False
    if graph.reused or not _scatter_is_cheaper(graph, row_bytes):
        return None
    return graph.unsorted()


def _scatter_is_cheaper(graph: Graph, row_bytes: int) -> bool:
    shape = Shape(graph.num_targets, graph.num_user_edges, 0)
    return scatter_cost(shape, row_bytes) < sorting_cost(shape) + walk_cost(shape, row_bytes, Mapping())
