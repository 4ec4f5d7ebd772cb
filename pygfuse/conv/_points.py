"""What layers take whose edges go to each point from its nearest neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from pygfuse.conv._layer.checks import pair_of


class Clouds(NamedTuple):
    """Points and queries, which may be the same.

    Attributes:
        points, queries: Their features, ``[nodes, features]``.
        batches: The cloud of each of both, or None.
        names: What a user calls these four tensors.
    """

    points: Tensor
    queries: Tensor
    batches: tuple[Tensor | None, Tensor | None]
    names: str


def clouds_of(x: Any, batch: Any) -> Clouds:
    """The points and queries of a call.

    Args:
        x: Features, or a pair of those of points and queries.
        batch: The cloud of each node, or a pair of them, or None.

    Raises:
        ValueError: If points or queries are missing, or points are not two-dimensional.
    """
    points, queries = pair_of(x)
    if points is None or queries is None:
        raise ValueError(f"Expected 'x' to hold points and queries (got None in x[{int(points is not None)}])")
    if points.dim() != 2:
        name = 'x' if isinstance(x, Tensor) else 'x[0]'
        raise ValueError(f"Expected '{name}' to be two-dimensional, [nodes, features] (got shape {list(points.shape)})")
    batches = tuple(batch) if isinstance(batch, (tuple, list)) else (batch, batch)
    names = 'x,x' if isinstance(x, Tensor) else 'x[0],x[1]'
    names += ',batch[0],batch[1]' if isinstance(batch, (tuple, list)) else ',batch,batch'
    return Clouds(points, queries, batches, names)
