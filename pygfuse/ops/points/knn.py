"""k-nearest neighbours, exact, without extra packages.

`knn` and `knn_graph` have the arguments and results of PyG's functions of the same names, which need pyg-lib.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.backends import neighbour_search_of
from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.graph import Graph
from pygfuse.ops.points.clouds import check_alike, check_batch_size, check_flow, checked_batch, pointers, prepared
from pygfuse.ops.within_torch.compiled_graphs import register_fake
from pygfuse.ops.within_torch.intercepted import is_intercepted
from pygfuse.ops.within_torch.tags import OF_EDGES

__all__ = ['knn', 'knn_graph']

NAMES = 'x,y,batch_x,batch_y'
# distances that exist at once where torch searches
_TORCH_CHUNK = 1 << 22


def knn(
    x: Tensor,
    y: Tensor,
    k: int,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    r"""The `k` nearest points in `x` of each point in `y`: ``torch_geometric.nn.knn`` without pyg-lib.

    Distances are Euclidean and compared by their squares,
    :math:`\sum_{d=1}^F (\mathbf{x}_{i,d} - \mathbf{y}_{j,d})^2`, summed from the first to the last dimension in the
    type of the points, each operation rounded. Of equal distances the point of the lower index comes first, and a
    distance that is no number counts as infinite: the result is the same on every machine. It has no gradient.

    The time is that of brute force, in proportion to the sum over clouds of points times queries. On a CPU, large
    clouds of at most eight dimensions are searched only in boxes that are near enough, with the same result. The memory
    grows with points and queries alone. Nothing of size points x queries is ever whole.

    Args:
        x: The points, ``[N, F]`` (or ``[N]`` for one dimension). Smaller floats are taken as float32, integers as
            float64.
        y: The queries, ``[M, F]``, of the same type and device.
        k: How many neighbours; a cloud of fewer points gives as many as it has.
        batch_x: The cloud of each point, ``[N]``, ascending integers from 0. None stands for one cloud.
        batch_y: The cloud of each query, ``[M]``, likewise. A query has neighbours in its own cloud only.
        cosine: Whether to compare directions: points and queries (but zeros) are scaled to length 1 first.
        num_workers: Has no effect: torch's threads do the work.
        batch_size: Number of clouds, where the last ones may be empty.

    Returns:
        ``[2, edges]``, int64: queries in row 0, their neighbours in row 1, query by query, from near to far.

    Raises:
        ValueError: If an argument has another shape, type or device than expected, a batch is not sorted, or `k` or
            `batch_size` is not positive (0 clouds have no points).

    Example:
        >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> y = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
        >>> knn(x, y, 2)
        tensor([[0, 0, 1, 1],
                [0, 1, 2, 3]])
    """
    check_k(k)
    check_batch_size(batch_size, x, y)
    points = x.detach()
    queries = points if y is x else y.detach()
    return torch.ops.pygfuse.knn(points, queries, k, batch_x, batch_y, cosine, batch_size, FLOWS[1], NAMES)


def knn_graph(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    loop: bool = False,
    flow: str = 'source_to_target',
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    r"""The graph of edges to each point from its `k` nearest: ``torch_geometric.nn.knn_graph`` without pyg-lib.

    Which points are nearest is as in `knn`. Without `loop` a point is no neighbour of itself and has the `k` nearest of
    the others. (PyG asks for ``k + 1`` and drops the point if it is among them: the same, except where more than `k`
    others lie at the same place, which gives PyG's graph ``k + 1`` edges.)

    Edges are sorted by target, and fused convolutions take the graph without sorting or checking it again.

    Args:
        x: The points, ``[N, F]``, as in `knn`.
        k: How many neighbours; a cloud of fewer points gives as many as it has.
        batch: The cloud of each point, ``[N]``, ascending integers from 0. None stands for one cloud.
        loop: Whether a point is among its own neighbours.
        flow: ``'source_to_target'``: row 0 holds the neighbours and row 1 the points; ``'target_to_source'``: the
            reverse.
        cosine: Whether to compare directions, as in `knn`.
        num_workers: Has no effect.
        batch_size: Number of clouds.

    Returns:
        ``edge_index``, ``[2, edges]``, int64.

    Raises:
        ValueError: As `knn`, or if `flow` is none of the two.

    Example:
        >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> knn_graph(x, k=2)
        tensor([[1, 2, 0, 3, 0, 3, 1, 2],
                [0, 0, 1, 1, 2, 2, 3, 3]])
    """
    check_k(k)
    check_flow(flow)
    return neighbours_of(x, x if loop else None, k, batch, batch, 'x,x,batch,batch', flow, cosine, batch_size)


def neighbours_of(
    x: Tensor,
    y: Tensor | None,
    k: int,
    batch_x: Tensor | None,
    batch_y: Tensor | None,
    names: str = NAMES,
    flow: str = FLOWS[0],
    cosine: bool = False,
    batch_size: int | None = None,
) -> Tensor:
    """The ``edge_index`` from points to queries, in general known to `Graph.of` already.

    Args:
        x: The points.
        y: The queries; None for the points themselves, none of which is its own neighbour.
        k: How many neighbours.
        batch_x: The cloud of each point.
        batch_y: The cloud of each query.
        names: What a user calls these four tensors, for errors.
        flow: Which row holds the queries, the targets of edges.
        cosine: As in `knn`.
        batch_size: Number of clouds.
    """
    check_batch_size(batch_size, x, x if y is None else y)
    points = x.detach()
    queries = points if y is x else None if y is None else y.detach()
    edge_index = torch.ops.pygfuse.knn(points, queries, k, batch_x, batch_y, cosine, batch_size, flow, names)
    num_targets = len(x if y is None else y)
    # known only where every cloud has k neighbours to give; elsewhere the graph is made when it is needed
    if not is_intercepted() and edge_index.shape[1] == k * num_targets:
        Graph.keep_regular(edge_index, k, len(x), num_targets, flow)
    return edge_index


@torch.library.custom_op('pygfuse::knn', mutates_args=(), tags=OF_EDGES)
def _knn(
    x: Tensor,
    y: Tensor | None,
    k: int,
    batch_x: Tensor | None,
    batch_y: Tensor | None,
    cosine: bool,
    batch_size: int | None,
    flow: str,
    names: str,
) -> Tensor:
    without_self = y is None
    name_x, name_y, *batch_names = names.split(',')
    points = _directed(prepared(name_x, x), cosine)
    queries = points if y is None or y is x else _directed(prepared(name_y, y), cosine)
    check_alike(points, queries, name_x, name_y)
    batch_x = checked_batch(batch_names[0], batch_x, points, batch_size)
    batch_y = checked_batch(batch_names[1], batch_y, queries, batch_size)
    ptr_x, ptr_y = pointers(batch_x, batch_y, points, queries, batch_size)
    lengths = (ptr_x.diff() - int(without_self)).clamp(min=0, max=k)
    own = neighbour_search_of(points.device)
    search = nearest_by_torch if own is None else own.nearest
    return search(points, queries, ptr_x, ptr_y, lengths, without_self, flow == FLOWS[1])


@register_fake(_knn)
def _(x, y, k, batch_x, batch_y, cosine, batch_size, flow, names):
    edges = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(2, edges, dtype=torch.int64)


def check_k(k: int) -> None:
    """Raises a ValueError if there cannot be `k` neighbours."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ValueError(f"Expected 'k' to be a positive integer (got {k!r})")


def _directed(points: Tensor, cosine: bool) -> Tensor:
    """Points, or their directions."""
    return torch.nn.functional.normalize(points).contiguous() if cosine else points


def nearest_by_torch(
    x: Tensor, y: Tensor, ptr_x: Tensor, ptr_y: Tensor, lengths: Tensor, without_self: bool, queries_first: bool
) -> Tensor:
    """The same as `pygfuse.cpu.points.knn.nearest` by torch's own operators, on any device: chunks and a running
    list."""
    pairs = []
    for cloud, length in enumerate(lengths.tolist()):
        first, end = ptr_x[cloud].item(), ptr_x[cloud + 1].item()
        rows = max(1, _TORCH_CHUNK // max(1, min(end - first, _TORCH_CHUNK) + length))
        for query in range(ptr_y[cloud].item(), ptr_y[cloud + 1].item(), rows):
            queries = torch.arange(query, min(query + rows, ptr_y[cloud + 1].item()), device=x.device)
            found = _lists_by_torch(x, y, queries, first, end, length, without_self)
            pairs.append(torch.stack([queries.repeat_interleave(length), found.flatten()]))
    pair = torch.cat(pairs, dim=1) if pairs else torch.empty(2, 0, dtype=torch.int64, device=x.device)
    return pair if queries_first else pair.flip(0)


def _lists_by_torch(
    x: Tensor, y: Tensor, queries: Tensor, first: int, end: int, length: int, without_self: bool
) -> Tensor:
    """The nearest of points [first, end) for some queries, ``[queries, length]``."""
    best = y.new_empty(len(queries), 0)
    numbers = queries.new_empty(len(queries), 0)
    # a point itself comes before all others and is dropped at the end
    extra = int(without_self)
    for start in range(first, end, _TORCH_CHUNK):
        points = torch.arange(start, min(start + _TORCH_CHUNK, end), device=x.device)
        total = y.new_zeros(len(queries), len(points))
        for d in range(x.shape[1]):
            total += (x[points, d] - y[queries, d].unsqueeze(1)).square()
        total.nan_to_num_(nan=float('inf'), posinf=float('inf'))
        if without_self:
            total[points == queries.unsqueeze(1)] = -float('inf')
        best = torch.cat([best, total], dim=1)
        numbers = torch.cat([numbers, points.expand(len(queries), -1)], dim=1)
        best, order = best.sort(dim=1, stable=True)
        best, numbers = best[:, : length + extra], numbers.gather(1, order[:, : length + extra])
    return numbers[:, extra:]
