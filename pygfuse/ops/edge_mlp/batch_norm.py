"""Batch normalisation over all edges: statistics by a pass over chunks, and then a scale and a shift.

What a batch normalisation reads and writes of its module, and when, is what torch's does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import BatchNorm1d

from pygfuse.ops.edge_mlp.moments import edge_moments
from pygfuse.ops.edge_mlp.stages import Affine, EdgeStage, Map, widths_of, written
from pygfuse.ops.edges import Edges


def statistics_by(
    module: BatchNorm1d,
    num_edges: int,
    like: Tensor,
    compute: Callable[[], tuple[Tensor, Tensor]],
    allow_single: bool = False,
) -> tuple[Tensor, Tensor]:
    """The mean and variance by which values of edges are normalised.

    Args:
        module: torch's, whose running statistics move where they do in its own forward.
        num_edges: How many edges there are.
        like: What the statistics are like, ``[channels]``.
        compute: Gives mean and (biased) variance over all edges, of which there are at least two.
        allow_single: Whether a single edge is normalised by the running statistics, as an option of PyG's says.

    Raises:
        ValueError: If a single edge would be normalised by its own statistics, as torch raises.
    """
    by_batch = module.training or (module.running_mean is None and module.running_var is None)
    if allow_single and num_edges <= 1:
        by_batch = False
    elif module.training and module.track_running_stats and module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
    if by_batch and num_edges == 1:
        raise ValueError(
            f'Expected more than 1 value per channel when training, got input size {torch.Size([1, len(like)])}'
        )
    if by_batch and num_edges > 0:
        mean, variance = compute()
        if module.training and module.track_running_stats:
            _update(module, mean.detach(), variance.detach() * (num_edges / (num_edges - 1)))
        return mean, variance
    if module.running_mean is not None:
        # copies, as a later call may move them before backward reads what was saved
        return module.running_mean.clone(), module.running_var.clone()
    return torch.zeros_like(like), torch.ones_like(like)


def scale_of(module: BatchNorm1d, variance: Tensor) -> Tensor:
    """What centred values are multiplied by."""
    scale = torch.rsqrt(variance + module.eps)
    return scale if module.weight is None else scale * module.weight


def scaled_and_shifted(
    stages: Sequence[EdgeStage], mean: Tensor, scale: Tensor, bias: Tensor | None
) -> list[EdgeStage]:
    """Stages whose values are centred, scaled and shifted at the end: by the stage that is last, if it can."""
    shift = -mean * scale if bias is None else torch.addcmul(bias, mean, scale, value=-1)
    *before, last = stages
    if isinstance(last, Map):
        moved = shift if last.bias is None else torch.addcmul(shift, last.bias, scale)
        return [*before, Map(last.weight * scale.unsqueeze(1), moved)]
    if isinstance(last, Affine):
        return [*before, Affine(last.scale * scale, torch.addcmul(shift, last.shift, scale))]
    return [*stages, Affine(scale, shift)]


def normalised(
    stages: Sequence[EdgeStage], edges: Edges, module: BatchNorm1d, allow_single: bool = False
) -> list[EdgeStage]:
    """Stages, beginning with a `Begin`, whose values are normalised over all edges; raises as `statistics_by`."""
    like = next(tensor for tensor in written(stages)[1] if tensor.is_floating_point())
    like = like.new_empty(widths_of(stages)[-1])
    mean, variance = statistics_by(
        module, edges.num_edges, like, lambda: mean_and_variance(stages, edges, like.dtype), allow_single
    )
    return scaled_and_shifted(stages, mean, scale_of(module, variance), module.bias)


def mean_and_variance(stages: Sequence[EdgeStage], edges: Edges, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of the stages' values over all edges."""
    *before, last = stages
    if not isinstance(last, (Map, Affine)):
        mean, covariance = edge_moments(stages, edges)
        return mean.to(dtype), covariance.diagonal().to(dtype)
    # what is mapped is known by the moments of what it is mapped from
    weight, bias = (last.scale.diag(), last.shift) if isinstance(last, Affine) else (last.weight, last.bias)
    mean, covariance = edge_moments(before, edges)
    weight = weight.double()
    variance = ((weight @ covariance) * weight).sum(dim=1)
    mean = weight @ mean if bias is None else weight @ mean + bias.double()
    return mean.to(dtype), variance.to(dtype)


def _update(module: BatchNorm1d, mean: Tensor, variance: Tensor) -> None:
    """Moves the running statistics as torch does."""
    factor = module.momentum
    if factor is None:
        factor = 1.0 / float(module.num_batches_tracked)
    with torch.no_grad():
        for running, found in ((module.running_mean, mean), (module.running_var, variance)):
            # torch's own writes are not counted as such either: its backward has saved these tensors
            running.data.mul_(1 - factor).add_(found, alpha=factor)
