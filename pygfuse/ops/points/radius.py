"""All points within a distance, exact, without extra packages.

`radius` and `radius_graph` have the arguments of PyG's functions of the same names, which need pyg-lib.
"""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor

from pygfuse._lib.backends import radius_search_of
from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.within import Within
from pygfuse.ops.points.clouds import (
    check_alike,
    check_batch_size,
    check_finite,
    check_flow,
    checked_batch,
    pointers,
    prepared,
)
from pygfuse.ops.within_torch.compiled_graphs import register_fake
from pygfuse.ops.within_torch.tags import OF_EDGES

__all__ = ['radius', 'radius_graph']

# distances that exist at once where torch searches
_TORCH_CHUNK = 1 << 22


def radius(
    x: Tensor,
    y: Tensor,
    r: float,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    max_num_neighbors: int | None = 32,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    r"""The points in `x` within the distance `r` of each point in `y`: ``torch_geometric.nn.radius`` without pyg-lib.

    A point is within it if

    .. math::
        \sum_{d=1}^F (\mathbf{x}_{i,d} - \mathbf{y}_{j,d})^2 \le r^2,

    where both sides are computed in float64, whatever the type of the points, the sum from the first to the last
    dimension and each operation rounded: scipy's ``cKDTree`` computes the same, and the result is the same on every
    machine. So a point at the distance `r` itself is within it, which in PyG it is not. Points of float32 are taken as
    they are: ``torch.tensor(0.1)`` is 1.5e-9 farther from 0 than ``r=0.1``. The result has no gradient.

    Where more than `max_num_neighbors` points are within it, the nearest are taken, of equally near ones those of lower
    indices. (PyG takes those that its tree meets first on a CPU, and those of the lowest indices on a GPU.)

    The time grows with the points in the cells around each query: cells have the side `r`, in at most three dimensions,
    those in which the points extend farthest. The memory grows with points, queries and edges alone.

    Args:
        x: The points, ``[N, F]`` (or ``[N]`` for one dimension), finite. Smaller floats are taken as float32, integers
            as float64.
        y: The queries, ``[M, F]``, of the same type and device.
        r: The distance, at least 0.
        batch_x: The cloud of each point, ``[N]``, ascending integers from 0. None stands for one cloud.
        batch_y: The cloud of each query, ``[M]``, likewise. A query has neighbours in its own cloud only.
        max_num_neighbors: How many neighbours a query has at most; None for all that there are.
        num_workers: Has no effect: torch's threads do the work.
        batch_size: Number of clouds, where the last ones may be empty.

    Returns:
        ``[2, edges]``, int64: queries in row 0, their neighbours in row 1, query by query, in ascending order.

    Raises:
        ValueError: If an argument has another shape, type or device than expected, a coordinate is infinite or no
            number, a batch is not sorted, `r` is negative or no number, or `max_num_neighbors` or `batch_size` is not
            positive (0 clouds have no points).

    Example:
        >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> y = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
        >>> radius(x, y, 1.5)
        tensor([[0, 0, 1, 1],
                [0, 1, 2, 3]])
    """
    _check_limits(r, max_num_neighbors)
    check_batch_size(batch_size, x, y)
    points = x.detach()
    queries = points if y is x else y.detach()
    return torch.ops.pygfuse.radius(
        points, queries, float(r), batch_x, batch_y, max_num_neighbors, batch_size, FLOWS[1], 'x,y,batch_x,batch_y'
    )


def radius_graph(
    x: Tensor,
    r: float,
    batch: Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int | None = 32,
    flow: str = 'source_to_target',
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    r"""The graph of edges to each point from those within the distance `r`: ``torch_geometric.nn.radius_graph`` without
    pyg-lib.

    Which points are within it is as in `radius`. Without `loop` a point is no neighbour of itself and does not count
    among its `max_num_neighbors`. Without a limit (``max_num_neighbors=None``) each edge comes with its reverse.

    Edges are sorted by target, those of one target by source.

    Args:
        x: The points, ``[N, F]``, as in `radius`.
        r: The distance, at least 0.
        batch: The cloud of each point, ``[N]``, ascending integers from 0. None stands for one cloud.
        loop: Whether a point is among its own neighbours.
        max_num_neighbors: How many neighbours a point has at most, the nearest; None for all that there are.
        flow: ``'source_to_target'``: row 0 holds the neighbours and row 1 the points; ``'target_to_source'``: the
            reverse.
        num_workers: Has no effect.
        batch_size: Number of clouds.

    Returns:
        ``edge_index``, ``[2, edges]``, int64.

    Raises:
        ValueError: As `radius`, or if `flow` is none of the two.

    Example:
        >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> radius_graph(x, r=2.0)
        tensor([[1, 2, 0, 3, 0, 3, 1, 2],
                [0, 0, 1, 1, 2, 2, 3, 3]])
    """
    _check_limits(r, max_num_neighbors)
    check_flow(flow)
    check_batch_size(batch_size, x, x)
    points = x.detach()
    return torch.ops.pygfuse.radius(
        points, points if loop else None, float(r), batch, batch, max_num_neighbors, batch_size, flow, 'x,x,batch,batch'
    )


@torch.library.custom_op('pygfuse::radius', mutates_args=(), tags=OF_EDGES)
def _radius(
    x: Tensor,
    y: Tensor | None,
    r: float,
    batch_x: Tensor | None,
    batch_y: Tensor | None,
    max_num_neighbors: int | None,
    batch_size: int | None,
    flow: str,
    names: str,
) -> Tensor:
    name_x, name_y, *batch_names = names.split(',')
    points = prepared(name_x, x)
    queries = points if y is None or y is x else prepared(name_y, y)
    check_alike(points, queries, name_x, name_y)
    check_finite(name_x, points)
    if queries is not points:
        check_finite(name_y, queries)
    batch_x = checked_batch(batch_names[0], batch_x, points, batch_size)
    batch_y = checked_batch(batch_names[1], batch_y, queries, batch_size)
    ptr_x, ptr_y = pointers(batch_x, batch_y, points, queries, batch_size)
    own = radius_search_of(points.device)
    search = within_by_torch if own is None else own.within
    return search(Within(points, queries, ptr_x, ptr_y, r, max_num_neighbors, y is None, flow == FLOWS[1]))


@register_fake(_radius)
def _(x, y, r, batch_x, batch_y, max_num_neighbors, batch_size, flow, names):
    edges = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(2, edges, dtype=torch.int64)


def _check_limits(r: float, max_num_neighbors: int | None) -> None:
    if not isinstance(r, numbers.Real) or isinstance(r, bool) or math.isnan(r) or r < 0:
        raise ValueError(f"Expected 'r' to be a number of at least 0 (got {r!r})")
    if max_num_neighbors is None:
        return
    if not isinstance(max_num_neighbors, int) or isinstance(max_num_neighbors, bool) or max_num_neighbors < 1:
        raise ValueError(f"Expected 'max_num_neighbors' to be None or a positive integer (got {max_num_neighbors!r})")


def within_by_torch(search: Within) -> Tensor:
    """The same as `pygfuse.cpu.points.radius.within` by torch's own operators, on any device: all distances, in
    chunks."""
    x, y, ptr_x, ptr_y = search.x.double(), search.y.double(), search.ptr_x, search.ptr_y
    pairs = [torch.empty(2, 0, dtype=torch.int64, device=x.device)]
    for cloud in range(len(ptr_x) - 1):
        first, end = ptr_x[cloud].item(), ptr_x[cloud + 1].item()
        rows = max(1, _TORCH_CHUNK // max(1, end - first))
        for query in range(ptr_y[cloud].item(), ptr_y[cloud + 1].item(), rows):
            last = min(query + rows, ptr_y[cloud + 1].item())
            diagonal = query - first if search.without_self else None
            found = _pairs_by_torch(x[first:end], y[query:last], search.r * search.r, search.wanted, diagonal)
            pairs.append(found + found.new_tensor([[query], [first]]))
    pair = torch.cat(pairs, dim=1)
    return pair if search.queries_first else pair.flip(0)


def _pairs_by_torch(x: Tensor, y: Tensor, limit: float, wanted: int | None, diagonal: int | None) -> Tensor:
    """The pairs of some queries and points; on one diagonal of all pairs a point meets itself and does not count."""
    total = y.new_zeros(len(y), len(x))
    for d in range(x.shape[1]):
        total += (x[:, d] - y[:, d].unsqueeze(1)).square()
    held = total <= limit
    if diagonal is not None:
        rows = torch.arange(len(y), device=x.device)
        held[rows, rows + diagonal] = False
    if wanted is not None and wanted < len(x):
        nearest = total.masked_fill(~held, float('inf')).sort(dim=1, stable=True).indices[:, :wanted]
        held &= torch.zeros_like(held).scatter_(1, nearest, True)
    return held.nonzero().t()
