"""A network on edges in plain torch, with values of all edges at once: of few edges, and where a gradient is itself
differentiated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse.graph.csr import Csr
from pygfuse.ops.edge_mlp.stages import Affine, Begin, Contract, Drop, EdgeStage, Map, Normalise, Plus, Rectifier, Times
from pygfuse.ops.edges import Edges
from pygfuse.program.vocabulary import dropout_factor


def values_of(stages: Sequence[EdgeStage], sources: Tensor, targets: Tensor, order: Tensor | None = None) -> Tensor:
    """The values of edges.

    Args:
        stages: What happens on an edge.
        sources, targets: The ends of each.
        order: Which row of features is that of each edge; None where they lie in the order of the edges.
    """
    values = None
    for stage in stages:
        if isinstance(stage, Begin):
            values = _beginning(stage, sources, targets, order)
        elif isinstance(stage, Plus):
            features = _rows_of(stage.features, order)
            values = values + (features if stage.weight is None else features @ stage.weight.t())
        elif isinstance(stage, Times):
            values = values if stage.source is None else values * stage.source.index_select(0, sources)
            values = values if stage.features is None else values * _rows_of(stage.features, order)
        elif isinstance(stage, Drop):
            values = values * dropout_factor(_rows_of(stage.features, order), *stage.draws)
        elif isinstance(stage, Contract):
            values = applied_alone(dataclasses.replace(stage, source=stage.source.index_select(0, sources)), values)
        else:
            values = applied_alone(stage, values)
    return values


def _rows_of(features: Tensor, order: Tensor | None) -> Tensor:
    return features if order is None else features.index_select(0, order)


def _values_by_target(stages: Sequence[EdgeStage], csr: Csr) -> Tensor:
    order = None if csr.edge_id is None else csr.edge_id.long()
    return values_of(stages, csr.index.long(), csr.rows(), order)


def applied_alone(stage: EdgeStage, values: Tensor) -> Tensor:
    """The values after a stage that reads no features; the source of a contraction has its rows edge by edge."""
    if isinstance(stage, Map):
        return F.linear(values, stage.weight, stage.bias)
    if isinstance(stage, Affine):
        return values * stage.scale + stage.shift
    if isinstance(stage, Rectifier):
        return torch.where(values > 0, values, values * stage.slope)
    if isinstance(stage, Normalise):
        return _normalised(stage, values)
    return _contraction(stage, values) if isinstance(stage, Contract) else stage(values)


def _normalised(stage: Normalise, values: Tensor) -> Tensor:
    # torch's own is differentiated twice at most: its second derivative holds mean and variance fixed
    centred = values - values.mean(dim=1, keepdim=True)
    found = centred * torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + stage.eps)
    found = found if stage.weight is None else found * stage.weight
    return found if stage.bias is None else found + stage.bias


def _contraction(stage: Contract, values: Tensor) -> Tensor:
    source = stage.source
    matrices = stage.weight.unflatten(1, (-1, source.shape[1]))
    found = torch.einsum('ek,ei,oki->eo', values, source, matrices[:, : values.shape[1]])
    return found if matrices.shape[1] == values.shape[1] else found + source @ matrices[:, -1].t()


def _beginning(stage: Begin, sources: Tensor, targets: Tensor, order: Tensor | None) -> Tensor:
    terms = []
    if stage.source is not None:
        terms.append(stage.source.index_select(0, sources))
    if stage.target is not None:
        terms.append(stage.target.index_select(0, targets))
    if stage.features is not None:
        terms.append(_rows_of(stage.features, order))
    return sum(terms[1:], terms[0])


def reference_network(
    stages: Sequence[EdgeStage], edges: Edges, reduce: str, winners: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`edge_network` in plain torch, with values of all edges at once: both results.

    With `winners`, the places of the winning edges in their rows, these alone have a gradient; else ties divide it.
    """
    csr = edges.graph().csr
    values = _values_by_target(stages, csr)
    state = values if csr.edge_id is None else torch.empty_like(values).index_copy(0, csr.edge_id.long(), values)
    if reduce == 'max' and winners is not None:
        return largest_at(winners, values, csr, values.new_zeros(edges.num_targets, values.shape[1])), state
    out = reduced(values, csr.rows(), edges.num_targets, reduce)
    return (out + 0 * values.sum() if reduce == 'none' else out), state


def reduced(values: Tensor, targets: Tensor, num_targets: int, reduce: str) -> Tensor:
    """The sum or maximum of values over the edges of each target, whose ties share the gradient; no rows for 'none'."""
    out = values.new_zeros(0 if reduce == 'none' else num_targets, values.shape[1])
    if reduce == 'none':
        return out
    if reduce == 'sum':
        return out.index_add(0, targets, values)
    return out.scatter_reduce(0, targets.unsqueeze(1).expand_as(values), values, 'amax', include_self=False)


def largest_at(winners: Tensor, values: Tensor, csr: Csr, out: Tensor) -> Tensor:
    """The largest values of edges by target, where they are known to be.

    Args:
        winners: The place of the largest in its row, NaN where that is NaN, ``[rows, width]``.
        values: The values by target, ``[edges, width]``.
        csr: Edges by target.
        out: Zeros, ``[rows, width]``.
    """
    indptr = csr.indptr.long()
    filled = indptr.diff().nonzero().squeeze(1)
    winning = indptr[filled].unsqueeze(1) + winners[filled].nan_to_num(0.0).long()
    # where the largest is NaN, so is the gradient of all edges
    poison = torch.where(winners.isnan(), winners, 0.0)
    largest = out.index_copy(0, filled, values.gather(0, winning))
    return largest + out.index_add(0, csr.rows(), values * poison[csr.rows()])


def reference_moments(stages: Sequence[EdgeStage], edges: Edges) -> tuple[Tensor, Tensor]:
    """`edge_moments` in plain torch, with values of all edges at once."""
    values = _values_by_target(stages, edges.graph().csr).double()
    mean = values.mean(dim=0)
    return mean, (values - mean).t() @ (values - mean) / values.shape[0]
