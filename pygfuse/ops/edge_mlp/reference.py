"""A network on edges in plain torch, with values of all edges at once: where a gradient is itself differentiated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse.graph.csr import Csr
from pygfuse.ops.edge_mlp.stages import Affine, Begin, Contract, EdgeStage, Map, Normalise, Plus, Rectifier, Times
from pygfuse.ops.edges import Edges


def _reference_values(stages: Sequence[EdgeStage], edges: Edges) -> Tensor:
    """The values by target."""
    csr = edges.graph().csr
    order = slice(None) if csr.edge_id is None else csr.edge_id.long()
    values = None
    for stage in stages:
        if isinstance(stage, Begin):
            values = _beginning(stage, csr.index.long(), csr.rows(), order)
        elif isinstance(stage, Plus):
            features = stage.features[order]
            values = values + (features if stage.weight is None else features @ stage.weight.t())
        elif isinstance(stage, Times):
            values = values if stage.source is None else values * stage.source[csr.index.long()]
            values = values if stage.features is None else values * stage.features[order]
        elif isinstance(stage, Contract):
            values = applied_alone(dataclasses.replace(stage, source=stage.source[csr.index.long()]), values)
        else:
            values = applied_alone(stage, values)
    return values


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


def _beginning(stage: Begin, sources: Tensor, targets: Tensor, order: Tensor | slice) -> Tensor:
    terms = []
    if stage.source is not None:
        terms.append(stage.source[sources])
    if stage.target is not None:
        terms.append(stage.target[targets])
    if stage.features is not None:
        terms.append(stage.features[order])
    return sum(terms[1:], terms[0])


def reference_network(
    stages: Sequence[EdgeStage], edges: Edges, reduce: str, winners: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`edge_network` in plain torch, with values of all edges at once: both results.

    With `winners`, the places of the winning edges in their rows, these alone have a gradient; else ties divide it.
    """
    values = _reference_values(stages, edges)
    csr = edges.graph().csr
    state = values if csr.edge_id is None else torch.empty_like(values).index_copy(0, csr.edge_id.long(), values)
    out = values.new_zeros(edges.num_targets if reduce != 'none' else 0, values.shape[1])
    if reduce == 'sum':
        return out.index_add(0, csr.rows(), values), state
    if reduce == 'none':
        return out + 0 * values.sum(), state
    if winners is None:
        return out.index_reduce(0, csr.rows(), values, 'amax', include_self=False), state
    return largest_at(winners, values, csr, out), state


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
    values = _reference_values(stages, edges).double()
    mean = values.mean(dim=0)
    return mean, (values - mean).t() @ (values - mean) / values.shape[0]
