"""What values of edges become on the self-loops that a layer adds."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from pygfuse.conv._layer.edges import user_rows
from pygfuse.graph.adjacency import FLOWS
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.edge_sum import EDGE_SUM


def loop_values(values: Tensor, fill: float | Tensor | str | None, edges: Edges) -> Tensor | None:
    """The values of the added self-loops, as PyG's ``add_self_loops`` fills them in.

    Args:
        values: ``[edges, K]``, one row for each edge of the user.
        fill: A number or tensor that every loop gets, or how the values of the edges at ``edge_index[1]`` are reduced,
            loops left out: ``'mean'``, ``'add'``, ``'min'``, ``'max'`` or ``'mul'``.
        edges: The edges; ``edges.loops`` says how many loops.

    Returns:
        ``[loops, K]``, or None if no loops are added.
    """
    if edges.loops is None:
        return None
    loops, width = edges.loops, values.shape[1]
    if not isinstance(fill, str):
        value = torch.as_tensor(1.0 if fill is None else fill, dtype=values.dtype, device=values.device)
        return value.expand(loops, width)
    by_walk = edges.flow == FLOWS[0] or edges.token.dim() == 2  # the token of a graph stands for its own flow
    if by_walk and fill in ('mean', 'add', 'sum'):
        reduce = 'mean' if fill == 'mean' else 'sum'
        return aggregate(EDGE_SUM, _towards_second_row(edges), {'value': values}, width, 1, reduce).flatten(1)[:loops]
    first, second = user_rows(edges)
    rows = max(edges.num_sources, edges.num_targets)
    # what PyG would drop goes to a row of its own
    index = torch.where(first == second, rows, second).long()
    return scatter(values, index, 0, rows + 1, reduce=fill)[:loops]


def _towards_second_row(edges: Edges) -> Edges:
    """The edges without self-loops, gathered at ``edge_index[1]``: where PyG fills in, whatever the flow."""
    if edges.flow == FLOWS[0]:
        return Edges(edges.token, edges.num_sources, edges.num_targets, loops=0)
    return Edges(edges.token, edges.num_targets, edges.num_sources, loops=0)
