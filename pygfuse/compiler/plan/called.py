"""Functions that the lines of a plan call, and under which names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch_geometric.utils
from torch import Tensor

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.modes import modes
from pygfuse._lib.note import Note
from pygfuse.compiler.capture.nested_layers import layer_of
from pygfuse.compiler.forms.lowering import Walk, WalkArguments
from pygfuse.compiler.ir.selections import parts
from pygfuse.compiler.ir.untouched import with_edges_only
from pygfuse.compiler.plan import by_type
from pygfuse.compiler.programs.emission import Factors
from pygfuse.graph.adjacency import target_row_of
from pygfuse.mapping.few_edges import are_multiplied_once, counted_bytes
from pygfuse.ops import Edges, aggregate, new_seed
from pygfuse.ops.aggregation import aggregate_known
from pygfuse.ops.degrees import degrees_of
from pygfuse.ops.dropout_draws import dropout_draws, edge_marks
from pygfuse.ops.eager import are_plain
from pygfuse.ops.few_edges.sums import SUMS, few_edges_weighed, is_said, sum_along
from pygfuse.ops.numbers_of_edges import numbers_of_edges
from pygfuse.ops.traced_values import traced_values_along
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, SOURCE, TARGET, EdgeProgram
from pygfuse.program.sums_along_edges import SUM, WEIGHTED
from pygfuse.program.trace import SCALAR


def _multiplied(features: Tensor, weight: Tensor) -> Tensor | Product:
    """An operand of several walks that is features of edges times a weight: multiplied once, where edges are few."""
    if torch.compiler.is_compiling():
        return Product(features, weight)
    row_bytes = counted_bytes(weight.shape[1], weight.element_size())
    if few_edges_of(features.device) is None or not are_multiplied_once(features.shape[0], row_bytes):
        return Product(features, weight)
    return _all_rows(features) @ weight


def _walked(
    walk: WalkArguments,
    edges: Edges,
    note: Note | None,
    operands: dict[str, Tensor | Product],
    shape: tuple[int, ...] | None,
) -> Tensor:
    """The result of a walk, in a shape that is not ``[targets, channels]``."""
    seed = None
    if walk.dropout > 0.0:
        seed = new_seed(next(v for v in operands.values() if isinstance(v, Tensor)))
    arguments = walk.program, edges, operands, walk.heads, walk.channels, walk.reduce, walk.dropout, seed
    out = aggregate(*arguments, flat=True) if note is None else aggregate_known(*arguments, note)
    return out if shape is None else out.view(out.shape[0], *shape)


def summed(walk: Walk) -> tuple[str, str | None] | None:
    """The operands of a walk that is a sum or mean of sources, perhaps weighed by a number for each edge."""
    if walk.dropout > 0.0 or any(isinstance(operand, Factors) for operand in walk.operands.values()):
        return None
    bound = walk.program.bind(tuple(walk.operands))
    if bound.summed_sources is not None and walk.reduce in SUMS:
        return bound.summed_sources, None
    if bound.weighed_sources is None or walk.reduce != SUM:
        return None
    source, weights = bound.weighed_sources
    # a number for each edge, or for its only head
    is_number = walk.heads == 1 or walk.program.operands[weights].level == SCALAR
    return (source, weights) if is_number else None


def _weighed(
    walk: WalkArguments, edges: Edges, note: Note | None, x: Tensor, weights: Tensor | None,
    operands: dict[str, Tensor], shape: tuple[int, ...] | None,
) -> Tensor:  # fmt: skip
    """The result of a walk that adds up sources, of few edges as they come."""
    # a first call runs as those that follow it: a checkpoint wants the same tensors saved
    is_known = note is not None or not (is_watched(list(operands.values())) or is_said(x.device))
    few = few_edges_weighed(edges, x, weights, note or modes().note) if is_known else None
    if few is None:
        return _walked(walk, edges, note, operands, shape)
    out = sum_along(x, few, walk.reduce if weights is None else WEIGHTED, weights=weights)
    return out if shape is None else out.view(out.shape[0], *shape)


def _all_rows(x: Tensor | Product) -> Tensor | Product:
    """A tensor with all its rows, if they were deferred: a chunk reads any of them. Features of edges never are."""
    return x if isinstance(x, Product) or are_plain((x,)) or x.dim() == 0 else x[:]


def _softmax_of_sources(x: Tensor, edges: Edges) -> Tensor:
    graph = edges.graph()
    return torch_geometric.utils.softmax(x, graph.ends()[1 - graph.target_row], num_nodes=graph.num_sources)


def _of_directions(found: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    """The results of a walk for each row of a value, in its shape."""
    return torch.stack(list(found), dim=1).view(-1, *shape)


def _gathered(x: Tensor, edges: Edges, residency: str) -> Tensor:
    """The rows of nodes for each edge of an ``edge_index``."""
    row = target_row_of(edges.flow)
    return x.index_select(0, edges.token[row if residency == TARGET else 1 - row])


def _resized(x: Tensor, size: int | Tensor) -> Tensor:
    """So many rows, of which those behind the targets are zero."""
    size = int(size)
    return x[:size] if size <= x.shape[0] else torch.cat([x, x.new_zeros(size - x.shape[0], *x.shape[1:])])


def _along(
    values: tuple[EdgeProgram, str, int, int, int],
    edges: Edges,
    operands: dict[str, Tensor | Product],
    shape: tuple[int, ...],
) -> Tensor:
    """Values of edges in a trace."""
    program, factor, heads, channels, width = values
    out = traced_values_along(program, factor, edges, operands, heads, channels, width)
    return out.view(out.shape[0], *shape)


def device_of(given: Mapping[str, Tensor], edges: Edges) -> torch.device:
    """Where the values of a call are; a token that stands for edges is on a CPU, wherever these are."""
    for tensor in given.values():
        return tensor.device
    return edges.token.device


def _number_of_rows(edges: Edges, device: torch.device, counted: str, dtype: torch.dtype) -> Tensor:
    count = {EDGE: edges.num_user_edges, TARGET: edges.num_targets, SOURCE: edges.num_sources}[counted]
    return torch.full((), count, dtype=dtype, device=device)


def _filled(
    edges: Edges, device: torch.device, shape: tuple[int, ...], number: float, dtype: torch.dtype, residency: str
) -> Tensor:
    """A row of one number for each target or source."""
    rows = edges.num_targets if residency == TARGET else edges.num_sources
    return torch.full((rows, *shape), number, dtype=dtype, device=device)


def _degree(edges: Edges, device: torch.device, dtype: Any, side: str) -> Tensor:
    """The numbers of edges into targets, or out of sources."""
    return degrees_of(edges, side, torch.empty(0, dtype=dtype, device=device))


def _copied(results: Sequence[Tensor], places: Sequence[int]) -> tuple[Tensor, ...]:
    """The results of a plan, those at some places in memory of their own."""
    return tuple([result.clone() if place in places else result for place, result in enumerate(results)])


CALLED = {
    'device_of': device_of,
    'Product': Product, 'walked': _walked, 'summed': _weighed, 'all_rows': _all_rows, 'multiplied': _multiplied,
    'with_edges_only': with_edges_only, 'gathered': _gathered, 'of_directions': _of_directions, 'parts': parts,
    'layer_of': layer_of, 'degree_of': _degree, 'filled': _filled, 'number_of_rows': _number_of_rows,
    'resized': _resized, 'along': _along, 'softmax_of_sources': _softmax_of_sources, 'by_type': by_type,
    'numbers_of_edges': numbers_of_edges, 'edge_marks': edge_marks, 'dropout_draws': dropout_draws, 'copied': _copied,
}  # fmt: skip
