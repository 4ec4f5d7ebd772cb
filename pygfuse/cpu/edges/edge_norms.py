"""The symmetric norm of edges without weights, with a self-loop at each node or as they are, by one kernel.

PyG takes some 20 operators for it, of few edges longer than their aggregation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.row_tiling import FORWARD_REGISTERS
from pygfuse.cpu.vectors.numbers import NUMPY_TYPES
from pygfuse.cpu.vectors.row_blocks import blocks
from pygfuse.cpu.walks.ends import ends_of, is_any_outside
from pygfuse.program.vocabulary import sqrt

TYPES = (torch.float32, torch.float64)


def _body(dtype: torch.dtype) -> Callable:
    element = NUMPY_TYPES[dtype]
    # numbers alone, as rows of one head have them
    ((layout, _),) = blocks(dtype, 1, FORWARD_REGISTERS)
    load_number, store_number = layout.load_heads, layout.store_heads

    def edge_norms(part, edges, target_row, num_nodes, with_loops, kept, norms, num_kept):
        """Copies the edges that are kept and the loops behind them, and writes the norm of each."""
        targets, sources, num_edges = ends_of(edges, target_row)
        num_kept[0] = -1
        if is_any_outside(targets, sources, num_edges, num_nodes, num_nodes):
            return
        factors = np.empty(num_nodes, element)
        for v in range(num_nodes):
            factors[v] = with_loops
        for edge in range(num_edges):
            if with_loops == 0 or targets[edge] != sources[edge]:
                factors[targets[edge]] += 1.0
        for v in range(num_nodes):
            if factors[v] > 0.0:
                store_number(factors, v, 1.0 / sqrt(load_number(factors, v)))
        place, half = 0, len(kept) // 2
        for edge in range(num_edges):
            target, source = targets[edge], sources[edge]
            if with_loops == 0:
                norms[edge] = factors[source] * factors[target]
            elif target != source:
                kept[place] = edges[edge]
                kept[half + place] = edges[num_edges + edge]
                norms[place] = factors[source] * factors[target]
                place += 1
        if with_loops != 0:
            for v in range(num_nodes):
                kept[place] = v
                kept[half + place] = v
                norms[place] = factors[v] * factors[v]
                place += 1
        num_kept[0] = place

    return edge_norms


@functools.cache
def _kernel(dtype: torch.dtype) -> Kernel:
    return Kernel(_body(dtype), 'the norm of edges', (str(dtype),))


def edge_norms(
    edge_index: Tensor, target_row: int, num_nodes: int, with_loops: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The edges and the norm of each, 1 by the root of the product of its ends' degrees.

    Args:
        edge_index: ``[2, edges]``, int64, contiguous.
        target_row: Which of its rows holds the targets, whose edges are counted.
        num_nodes: Number of nodes.
        with_loops: Whether each node gets one self-loop in place of others, behind the edges.
        dtype: The type of the norms, one of `TYPES`.

    Returns:
        ``[2, edges]``, the same tensor without loops, and ``[edges]``.

    Raises:
        IndexError: If an edge names a node that is not there.

    Example:
        >>> edge_norms(torch.tensor([[0, 1, 1], [1, 1, 0]]), 1, 2, True, torch.float32)
        (tensor([[0, 1, 0, 1],
                [1, 0, 0, 1]]), tensor([0.5000, 0.5000, 0.5000, 0.5000]))
    """
    num_edges = edge_index.shape[1]
    count = num_edges + num_nodes if with_loops else num_edges
    kept = edge_index.new_empty(2, count if with_loops else 0)
    norms, num_kept = torch.empty(count, dtype=dtype), torch.empty(1, dtype=torch.int64)
    _kernel(dtype)(1, edge_index, target_row, num_nodes, int(with_loops), kept, norms, num_kept, threads=1)
    found = int(num_kept)
    if found < 0:
        raise IndexError('an edge names a node that is not there')
    if not with_loops:
        return edge_index, norms
    # some were self-loops
    return (kept, norms) if found == count else (kept[:, :found].contiguous(), norms[:found].clone())
