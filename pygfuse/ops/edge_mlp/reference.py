"""A network on edges in plain torch, with values of all edges at once: where a gradient is itself differentiated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.ops.edge_mlp.stages import Affine, EdgeStage, Map, Rectifier
from pygfuse.ops.edges import Edges


def _reference_values(source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges) -> Tensor:
    csr = edges.graph().csr
    values = source[csr.index.long()] + target[csr.rows()]
    for stage in stages:
        if isinstance(stage, Map):
            values = values @ stage.weight.t() + stage.bias
        elif isinstance(stage, Affine):
            values = values * stage.scale + stage.shift
        elif isinstance(stage, Rectifier):
            values = torch.where(values > 0, values, values * stage.slope)
        else:
            values = stage(values)
    return values


def reference_reduce(
    source: Tensor,
    target: Tensor,
    stages: Sequence[EdgeStage],
    edges: Edges,
    reduce: str,
    winners: Tensor | None = None,
) -> Tensor:
    """`edge_reduce` in plain torch, with values of all edges at once.

    With `winners`, the places of the winning edges in their rows, these alone have a gradient; else ties divide it.
    """
    values = _reference_values(source, target, stages, edges)
    csr = edges.graph().csr
    out = values.new_zeros(edges.num_targets, values.shape[1])
    if reduce == 'sum':
        return out.index_add(0, csr.rows(), values)
    if winners is None:
        return out.index_reduce(0, csr.rows(), values, 'amax', include_self=False)
    indptr = csr.indptr.long()
    filled = indptr.diff().nonzero().squeeze(1)
    winning = indptr[filled].unsqueeze(1) + winners[filled].nan_to_num(0.0).long()
    # where the largest is NaN, so is the gradient of all edges
    poison = torch.where(winners.isnan(), winners, 0.0)
    return out.index_copy(0, filled, values.gather(0, winning)) + out.index_add(
        0, csr.rows(), values * poison[csr.rows()]
    )


def reference_moments(
    source: Tensor, target: Tensor, stages: Sequence[EdgeStage], edges: Edges
) -> tuple[Tensor, Tensor]:
    """`edge_moments` in plain torch, with values of all edges at once."""
    values = _reference_values(source, target, stages, edges).double()
    mean = values.mean(dim=0)
    return mean, (values - mean).t() @ (values - mean) / values.shape[0]
