"""B-splines over pseudo-coordinates of edges (Fey et al., "SplineCNN", section 3), and products with their weights.

An edge has a few coefficients that are not zero, each of one of the kernel's weights. Ordered by weight they are rows
of products as those of types are: never a matrix, or a row of features, for each edge and coefficient at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.functions import applied
from pygfuse._lib.identity_cache import IdentityCache
from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.graph import Graph
from pygfuse.graph.orders import INT32_LIMIT
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated
from pygfuse.ops.within_torch.intercepted import is_intercepted

# degrees of which there are polynomials
DEGREES = 1, 2, 3


class Splines(NamedTuple):
    """A tensor product of B-splines.

    Attributes:
        sizes: How many splines there are in each dimension.
        are_open: Whether those of a dimension end with it, or begin again.
        degree: 1, 2 or 3.
    """

    sizes: tuple[int, ...]
    are_open: tuple[bool, ...]
    degree: int

    def coefficients(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """The splines that are not zero somewhere, by operators that autograd follows, and which ones these are.

        Args:
            coordinates: ``[points, dimensions]``, of the interval from 0 to 1. What PyG makes of others, it makes: a
                kernel begins again behind its end.

        Returns:
            Coefficients ``[points, (degree + 1) ** dimensions]``, and indices of the same shape, int64, of which the
            first dimension's run fastest.

        Raises:
            ValueError: If a coordinate is no number, or so far below 0 that no spline is there.

        Example:
            >>> Splines((3,), (True,), 1).coefficients(torch.tensor([[0.25], [1.0]]))
            (tensor([[0.5000, 0.5000],
                    [1.0000, 0.0000]]), tensor([[0, 1],
                    [2, 0]]))
        """
        count, step = len(coordinates), 1
        found = coordinates.new_ones(count, 1)
        index = torch.zeros(count, 1, dtype=torch.int64, device=coordinates.device)
        behind = torch.arange(self.degree + 1, device=coordinates.device)
        for place, size, is_open in zip(coordinates.unbind(1), self.sizes, self.are_open, strict=True):
            scaled = place * (size - self.degree * is_open)
            known = scaled.detach()
            if not bool((known > -1.0).all()):
                raise ValueError(f"Expected 'edge_attr' to lie between 0 and 1 (got {float(place.detach().min()):g})")
            own = _polynomials(scaled - known.floor(), self.degree)
            found = (own.unsqueeze(2) * found.unsqueeze(1)).flatten(1)
            places = (known.long().unsqueeze(1) + behind).remainder(size) * step
            index = (places.unsqueeze(2) + index.unsqueeze(1)).flatten(1)
            step *= size
        return found, index


def _polynomials(x: Tensor, degree: int) -> Tensor:
    """The pieces of a B-spline on one interval, ``[points, degree + 1]``."""
    if degree == 1:
        return torch.stack([1.0 - x, x], dim=1)
    if degree == 2:
        return torch.stack([0.5 * (1.0 - x).square(), 0.5 + x - x * x, 0.5 * x * x], dim=1)
    rest, square = 1.0 - x, x * x
    middle = 3.0 * square * x - 6.0 * square + 4.0, -3.0 * square * x + 3.0 * square + 3.0 * x + 1.0
    return torch.stack([rest * rest * rest, *middle, square * x], dim=1) / 6.0


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


class SplineEdges(NamedTuple):
    """What products along edges take.

    Attributes:
        rows: The coefficients by weight.
        read: The row of the features of each edge, or None where it is the edge's own.
        written: The row of the result of each edge, or None where it is the edge's own.
        count: The number of rows of the result.
        given: The edges as a call brings them, whose memory these may be: nobody may write into it before backward.
    """

    rows: SplineRows
    read: Tensor | None
    written: Tensor | None
    count: int
    given: Tensor | None = None


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


def spline_product(x: Tensor, weight: Tensor, coefficients: Tensor, edges: SplineEdges) -> Tensor:
    """``out[written[e]] += sum over s of coefficients[e, s] * x[read[e]] @ weight[index[e, s]]`` for each edge.

    Args:
        x: Features, ``[nodes, in]``.
        weight: ``[weights, in, out]``.
        coefficients: ``[edges, s]``.
        edges: The edges.

    Returns:
        ``[edges.count, out]``.

    Example:
        >>> rows = SplineRows.of(torch.tensor([[0, 1], [1, 0]]), 2)
        >>> edges = SplineEdges(rows, torch.tensor([0, 1]), torch.tensor([0, 0]), 1)
        >>> x, weight = torch.tensor([[1.0], [2.0]]), torch.tensor([[[1.0]], [[10.0]]])
        >>> spline_product(x, weight, torch.tensor([[0.5, 0.5], [1.0, 0.0]]), edges)
        tensor([[25.5000]])
    """
    if is_intercepted():
        return _reference(x, weight, coefficients, edges)
    return applied(_SplineProduct, x, weight, coefficients, edges.given, edges)


class _SplineProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, x: Tensor, weight: Tensor, coefficients: Tensor, given: Tensor | None, edges: SplineEdges
    ) -> Tensor:
        ctx.save_for_backward(x, weight, coefficients, given)
        ctx.edges = edges
        return _times(x, weight, coefficients, edges.rows, edges.read, edges.written, edges.count)

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, coefficients, _ = ctx.saved_tensors
        edges, needed, given = ctx.edges, ctx.needs_input_grad[:3], (x, weight, coefficients)
        if is_differentiated(grad):
            return *differentiable(functools.partial(_reference, edges=edges), given, grad, needed), None, None
        rows, read, written, *_ = edges
        of_x = _times(grad, weight.transpose(1, 2), coefficients, rows, written, read, len(x)) if needed[0] else None
        if not (needed[1] or needed[2]):
            return of_x, None, None, None, None
        of_weight, of_coefficients = torch.zeros_like(weight), torch.zeros_like(coefficients)
        factors, found = coefficients.reshape(-1, 1), of_coefficients.view(-1)
        for k, places in rows.blocks():
            edge = places.div(rows.count, rounding_mode='floor')
            block, of_block = _rows_of(x, read, edge), _rows_of(grad, written, edge)
            if needed[2]:
                found.index_copy_(0, places.long(), (block @ weight[k]).mul_(of_block).sum(1))
            if needed[1]:
                of_weight[k].addmm_((block * factors.index_select(0, places)).t(), of_block)
        return of_x, of_weight if needed[1] else None, of_coefficients if needed[2] else None, None, None


def _rows_of(x: Tensor, which: Tensor | None, edges: Tensor) -> Tensor:
    return x.index_select(0, edges if which is None else which.index_select(0, edges))


def _times(
    x: Tensor, weight: Tensor, coefficients: Tensor, rows: SplineRows, read: Tensor | None, written: Tensor | None,
    count: int,
) -> Tensor:  # fmt: skip
    out, factors = x.new_zeros(count, weight.shape[2]), coefficients.reshape(-1, 1)
    for k, places in rows.blocks():
        edge = places.div(rows.count, rounding_mode='floor')
        block = _rows_of(x, read, edge).mul_(factors.index_select(0, places))
        out.index_add_(0, edge if written is None else written.index_select(0, edge), block @ weight[k])
    return out


def _reference(x: Tensor, weight: Tensor, coefficients: Tensor, edges: SplineEdges) -> Tensor:
    """The same by operators that autograd differentiates, with all rows at once."""
    rows, read, written, count, _ = edges
    edge = rows.order.div(rows.count, rounding_mode='floor')
    block = _rows_of(x, read, edge) * coefficients.reshape(-1, 1).index_select(0, rows.order)
    sizes = torch.tensor(rows.bounds).diff().tolist()
    out = torch.cat([part @ one for part, one in zip(block.split(sizes), weight.unbind(), strict=True)])
    where = edge if written is None else written.index_select(0, edge)
    return out.new_zeros(count, out.shape[1]).index_add(0, where, out)
