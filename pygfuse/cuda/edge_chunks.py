"""Chunks of edges on a GPU, by operators of torch; what each function does, `pygfuse.cpu.edge_chunks` says.

A chunk has as many edges as keep a GPU busy, so that an operator for each step costs little beside what it computes.
Sums of rows are torch's ``index_add_``: in any order, but for ``torch.use_deterministic_algorithms``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk, rows_of
from pygfuse.program.activation import Activation
from pygfuse.program.vocabulary import dropout_factor

# of the widest value of a chunk: what keeps all multiprocessors busy
CHUNK_BYTES = 2**25
LEAST_EDGES, MOST_EDGES = 2**14, 2**19
# a library's products and torch's activations one by one
HAS_ROW_NETWORKS = False
# a product of all edges takes no longer than the host's look for what is not finite
MAPS_WINNERS_ALONE = False
# sums of products would be written and read once more
SUMS_PRODUCTS = False
# torch differentiates activations
HAS_TANGENTS = False


def chunk_size(value_bytes: int, most: int | None = None) -> int:
    """How many edges a chunk has; `most` is for sums in one line, which a GPU takes in many short ones."""
    return min(MOST_EDGES, max(LEAST_EDGES, CHUNK_BYTES // max(1, value_bytes)))


def on_huge_pages(tensor: Tensor) -> Tensor:
    """The tensor: pages are the driver's."""
    return tensor


def _sources(csr: Csr, chunk: EdgeChunk) -> Tensor:
    return csr.index[chunk.first : chunk.last]


def _places(csr: Csr, chunk: EdgeChunk, targets: Tensor, like: Tensor) -> Tensor:
    """The place of each edge in its row, ``[edges, 1]``, as a number like those that winners are kept in."""
    places = torch.arange(chunk.first, chunk.last, device=targets.device) - csr.indptr[targets]
    return places.to(like.dtype).unsqueeze(1)


def add_ends(csr: Csr, chunk: EdgeChunk, source: Tensor | None, target: Tensor | None, out: Tensor) -> None:
    """Writes ``target[i] + source[j]``, or one of them, for the edges (j, i) of a chunk to `out`."""
    if target is None:
        torch.index_select(source, 0, _sources(csr, chunk), out=out)
        return
    torch.index_select(target, 0, rows_of(csr, chunk), out=out)
    if source is not None:
        out.add_(source.index_select(0, _sources(csr, chunk)))


def add_to_targets(csr: Csr, chunk: EdgeChunk, values: Tensor, out: Tensor) -> None:
    """Adds the values of a chunk to the rows of their targets in `out`."""
    out.index_add_(0, rows_of(csr, chunk), values)


def add_to_sources(csr: Csr, chunk: EdgeChunk, values: Tensor, out: Tensor) -> None:
    """Adds the values of a chunk to the rows of their sources in `out`."""
    out.index_add_(0, _sources(csr, chunk), values)


def keep_largest(csr: Csr, chunk: EdgeChunk, values: Tensor, out: Tensor, winners: Tensor) -> None:
    """Raises `out` to the largest values of its rows' edges, and notes the place in its row of the first."""
    targets = rows_of(csr, chunk)
    rows = slice(chunk.row, chunk.row + chunk.rows)
    begun = (csr.indptr[rows] < chunk.first).unsqueeze(1)
    has_edges = (csr.indptr[chunk.row + 1 : chunk.row + chunk.rows + 1] > csr.indptr[rows]).unsqueeze(1)
    best = torch.where(begun, out[rows], -torch.inf)
    spread = (targets - chunk.row).unsqueeze(1).expand_as(values)
    raised = best.scatter_reduce(0, spread, values, 'amax')
    # of those that attain it the first: one of an earlier chunk comes before all of this one
    places = _places(csr, chunk, targets, values)
    attained = torch.where(values == raised.gather(0, spread), places, torch.inf)
    first = torch.full_like(best, torch.inf).scatter_reduce_(0, spread, attained, 'amin')
    first = torch.where(begun & (raised == best), winners[rows], first)
    # one that is NaN has no place
    first = torch.where(raised.isnan(), raised, first)
    out[rows] = torch.where(has_edges, raised, out[rows])
    winners[rows] = torch.where(has_edges, first, winners[rows])


def spread(csr: Csr, chunk: EdgeChunk, grad_out: Tensor, winners: Tensor | None, values: Tensor) -> None:
    """Writes each target's row of `grad_out` to its edges in the chunk; with `winners`, to these alone."""
    targets = rows_of(csr, chunk)
    torch.index_select(grad_out, 0, targets, out=values)
    if winners is not None:
        winner = winners.index_select(0, targets)
        # NaN for all edges of a NaN, as in torch
        torch.where(winner == _places(csr, chunk, targets, values), values, winner - winner, out=values)


def take_edges(csr: Csr, chunk: EdgeChunk, rows: Tensor, out: Tensor, adds: bool = False) -> None:
    """Writes the rows of a chunk's edges to `out`, or adds them to it."""
    taken = rows[chunk.first : chunk.last] if csr.edge_id is None else rows.index_select(0, _ids(csr, chunk))
    out.add_(taken) if adds else out.copy_(taken)


def put_edges(csr: Csr, chunk: EdgeChunk, values: Tensor, rows: Tensor) -> None:
    """Writes the values of a chunk to the rows of its edges, the reverse of `take_edges`."""
    if csr.edge_id is None:
        rows[chunk.first : chunk.last] = values
    else:
        rows.index_copy_(0, _ids(csr, chunk).long(), values)


def _ids(csr: Csr, chunk: EdgeChunk) -> Tensor:
    return csr.edge_id[chunk.first : chunk.last]


def mapped(values: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """``values @ weight.t() + bias``, in `out`."""
    if bias is None:
        return torch.mm(values, weight.t(), out=out)
    return torch.addmm(bias, values, weight.t(), out=out)


def add_mapped(values: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Adds ``values @ weight.t()`` to `out`, which is returned."""
    return out.addmm_(values, weight.t())


def mapped_back(grad: Tensor, weight: Tensor) -> Tensor:
    """``grad @ weight``."""
    return grad @ weight


def add_over_rows(grad: Tensor, values: Tensor, out: Tensor) -> None:
    """Adds ``grad.t() @ values``, a sum over all rows, to `out`."""
    out.addmm_(grad.t(), values)


def activated(act: Activation, values: Tensor, out: Tensor) -> None:
    """Writes an activation of values ``[edges, width]`` to `out`, which may be `values`."""
    act.into(values, out)


def dropped(values: Tensor, marks: Tensor, draws: Tensor, out: Tensor) -> None:
    """Writes values times their factors, drawn from marks and keys, to `out`."""
    torch.mul(values, dropout_factor(marks, *draws), out=out)


# rows of sources, features of a chunk's edges, and the tangents of both
Factors = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def times(csr: Csr, chunk: EdgeChunk, values: Tensor, factors: Factors, out: Tensor) -> None:
    """Writes a chunk's values times both factors, with the tangents of the products if values have them, to `out`."""
    source, features, source_tangent, features_tangent = _of_edges(csr, chunk, factors)
    factor = _product(source, features)
    if values.dim() == 3:
        moved = values[1] * factor
        if source_tangent is not None:
            moved += _product(values[0] * source_tangent, features)
        if features_tangent is not None:
            moved += _product(values[0] * features_tangent, source)
        # the values are read above, and may be where the results go
        out[1] = moved
        torch.mul(values[0], factor, out=out[0])
    else:
        torch.mul(values, factor, out=out)


def times_back(
    csr: Csr,
    chunk: EdgeChunk,
    values: Tensor,
    factors: Factors,
    grad: Tensor,
    grad_source: Tensor | None,
    grad_features: Tensor | None,
) -> None:
    """Turns gradients of `times` into those of `values`, in place, and gives those of the factors."""
    source, features, source_tangent, features_tangent = _of_edges(csr, chunk, factors)
    factor = _product(source, features)
    with_tangents = values.dim() == 3
    value, of_value = (values[0], grad[0]) if with_tangents else (values, grad)
    of_factor, before = of_value * value, of_value * factor
    if with_tangents:
        of_moved = grad[1]
        of_factor += of_moved * values[1]
    to_source, to_edge = _product(of_factor, features), _product(of_factor, source)
    if with_tangents:
        of_tangent = of_moved * value
        if source_tangent is not None:
            before += _product(of_moved * source_tangent, features)
            to_edge = to_edge + of_tangent * source_tangent
        if features_tangent is not None:
            before += _product(of_moved * features_tangent, source)
            to_source = to_source + of_tangent * features_tangent
        of_moved.mul_(factor)
    of_value.copy_(before)
    if grad_source is not None:
        grad_source.copy_(to_source)
    if grad_features is not None and grad_features.shape[1] == to_edge.shape[1]:
        grad_features.copy_(to_edge)
    elif grad_features is not None:
        grad_features.add_(to_edge.sum(dim=1, keepdim=True))


def _of_edges(csr: Csr, chunk: EdgeChunk, factors: Factors) -> Factors:
    """The factors as the edges of a chunk have them."""
    source, features, source_tangent, features_tangent = factors
    there = source, source_tangent
    of_source, moved = (None if rows is None else rows.index_select(0, _sources(csr, chunk)) for rows in there)
    return of_source, features, moved, features_tangent


def _product(first: Tensor | None, second: Tensor | None) -> Tensor | float:
    """The product of those that are there."""
    if first is None or second is None:
        return 1.0 if first is None and second is None else first if second is None else second
    return first * second
