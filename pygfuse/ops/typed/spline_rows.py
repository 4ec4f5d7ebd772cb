"""The coefficients that splines give the edges of a graph, ordered by the weight that they multiply."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.identity_cache import IdentityCache
from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.graph import Graph
from pygfuse.graph.orders import INT32_LIMIT
from pygfuse.ops.typed.splines import Splines


class SplineRows(NamedTuple):
    """The coefficients of edges, ordered by the weight that they multiply.

    Attributes:
        order: The place of each among those of all edges, edge by edge; int32 where that is enough.
        bounds: Where those of each weight begin, and the end.
        count: How many an edge has.
    """

    order: Tensor
    bounds: tuple[int, ...]
    count: int

    @staticmethod
    def of(index: Tensor, num_weights: int) -> SplineRows:
        """The rows for the weights of coefficients, ``[edges, count]``."""
        every = index.flatten()
        sizes = torch.bincount(every, minlength=num_weights)
        bounds, order = (0, *sizes.cumsum(0).tolist()), torch.argsort(every, stable=True)
        return SplineRows(order.int() if len(order) < INT32_LIMIT else order, bounds, index.shape[1])

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Weights, and places of coefficients that are taken together."""
        for k in range(len(self.bounds) - 1):
            for start in range(self.bounds[k], self.bounds[k + 1], ROWS_AT_ONCE):
                yield k, self.order[start : min(start + ROWS_AT_ONCE, self.bounds[k + 1])]


def splines_of(graph: Graph, coordinates: Tensor, splines: Splines) -> tuple[Tensor, SplineRows]:
    """The coefficients of a graph's edges, and their rows, which are kept with the coordinates that have no gradient.

    Args:
        graph: The edges.
        coordinates: ``[edges, dimensions]``.
        splines: The splines.

    Raises:
        ValueError: As of `Splines.coefficients`.
    """
    if coordinates.requires_grad and torch.is_grad_enabled():
        found, index = splines.coefficients(coordinates)
        return found, SplineRows.of(index, math.prod(splines.sizes))
    cache = graph.memo.get_or_make(('splines',), lambda: IdentityCache(state_of))
    key = 'splines', splines
    kept = cache.get(coordinates, key)
    if kept is None:
        state = state_of(coordinates)
        with torch.inference_mode(False), torch.no_grad():
            found, index = splines.coefficients(coordinates.detach().clone())
            made = found, SplineRows.of(index, math.prod(splines.sizes))
        # the alias keeps the address from being that of another tensor
        kept = cache.keep(coordinates, key, state, made, held=coordinates.detach())
    return kept
