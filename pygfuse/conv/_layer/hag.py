"""HAGs in convolutions: whether a call can aggregate over one, and what the report says of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pygfuse.graph.adjacency import FLOWS
from pygfuse.hag.attach import attached
from pygfuse.hag.hag import Hag
from pygfuse.ops import Edges
from pygfuse.ops.within_torch import autocast
from pygfuse.partial.rows.session import is_deferring

IGNORED = 'its messages are not plain neighbours'
USED = 'used'


def note_hag(conv: Any, adjacency: Any, said: str = IGNORED) -> None:
    """Remembers for `pygfuse.report` what became of the HAG that belongs to an adjacency; None if there is none.

    Args:
        conv: The layer.
        adjacency: What the user passed.
        said: `USED`, or why the layer did without.
    """
    if torch.compiler.is_compiling():
        return
    conv.note.hag = said if type(adjacency) is Tensor and attached(adjacency) is not None else None


def usable_hag(conv: Any, adjacency: Any, edges: Edges, why_not: str | None = None) -> Hag | None:
    """The HAG over which a call aggregates plain neighbours, or None.

    Args:
        conv: The layer.
        adjacency: What the user passed.
        edges: The edges of the call; with self-loops, the HAG has them too.
        why_not: A reason of the layer's own to do without.
    """
    if torch.compiler.is_compiling() or type(adjacency) is not Tensor:
        return None
    entry = attached(adjacency)
    if entry is None:
        return None
    if autocast.is_on(adjacency.device):
        why_not = 'autocast is on'
    if is_deferring():
        why_not = 'only some rows are computed'
    hag = why_not or _fitting(entry.hag(), edges)
    note_hag(conv, adjacency, hag if isinstance(hag, str) else USED)
    return None if isinstance(hag, str) else hag


def _fitting(hag: Hag | str, edges: Edges) -> Hag | str:
    if isinstance(hag, str):
        return hag
    hag = hag if edges.flow == FLOWS[0] else hag.reversed
    sizes, expected = (hag.num_sources, hag.num_targets), (edges.num_sources, edges.num_targets)
    if sizes != expected:
        return f'it is for {sizes[0]} sources and {sizes[1]} targets, not {expected[0]} and {expected[1]}'
    if edges.loops is None:
        return hag
    graph = edges.graph()
    if edges.loops != hag.num_targets or graph.num_edges != graph.num_user_edges + edges.loops:
        return 'the layer puts self-loops in place of others'
    return hag.with_self_loops()
