"""Edges as the user lists them, of which nothing but their number is known: few ones are walked so."""

from __future__ import annotations

import array
from typing import NamedTuple

from torch import Tensor


class Listed(NamedTuple):
    """The edges of a call, in the order of their ids; no graph was made of them, and nothing checked.

    Attributes:
        edge_index: ``[2, edges]``, int64, contiguous.
        target_row: Which of its rows holds the targets.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        num_loops: None, or the number of nodes that get exactly one self-loop in place of others.
        walked: One int64: where walks write how many edges they found.

    Example:
        >>> import array, torch
        >>> Listed(torch.tensor([[0, 1], [1, 0]]), 1, 2, 2, 2, array.array('q', (0,))).num_edge_ids
        4
    """

    edge_index: Tensor
    target_row: int
    num_sources: int
    num_targets: int
    num_loops: int | None
    walked: array.array

    @property
    def num_edge_ids(self) -> int:
        """Length of a tensor of one row an edge: the user's edges, and the self-loops put in."""
        return self.edge_index.shape[1] + (self.num_loops or 0)

    @property
    def num_edges(self) -> int:
        """Number of edges that the last walk found, self-loops included; negative if one is out of range."""
        return self.walked[0]
