"""Calls over few edges as they come: one kernel forward and one for all of the adjoint, on the calling thread.

Nothing is sorted and nothing kept, so that edges that are new cost what others cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.panels import pack
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.codegen import arguments as shared
from pygfuse.cpu import kernels, row_tiling
from pygfuse.cpu.launch import Launch
from pygfuse.cpu.operands import draws_of, operands_of
from pygfuse.cpu.panels import lanes_of
from pygfuse.cpu.walked_edges import nothing
from pygfuse.cpu.walks.arguments import Panels
from pygfuse.cpu.walks.listed import ListedEdges
from pygfuse.cpu.walks.listed_backward import Gradients, OfTargets
from pygfuse.graph.listed import Listed
from pygfuse.program.adjoint import BackwardPlan, whole_plan
from pygfuse.program.products import Product
from pygfuse.program.program import TARGET, BoundProgram


def forward(call: Call) -> tuple[Tensor, Tensor | None]:
    """The output and what its adjoint needs of it, as of `pygfuse.cpu.backend.forward`.

    Args:
        call: A call whose graph is a `Listed`; its products have no loops.

    Raises:
        IndexError: If an edge names a node that is not there. Nothing has been read by it.
    """
    return _walks(call.bound, call.heads, call.channels, call.reduce, call.like.dtype).forward(call)


def backward(asked: Gradient) -> dict[str, Tensor | Product]:
    """The gradients of operands, by name.

    Args:
        asked: Of a call as `forward` takes it.

    Raises:
        IndexError: As of `forward`.
    """
    call = asked.call
    return _walks(call.bound, call.heads, call.channels, call.reduce, call.like.dtype).backward(asked)


class _Walks:
    """The walks of calls of one program, over rows of one width and type."""

    def __init__(self, bound: BoundProgram, heads: int, channels: int, reduce: str, dtype: torch.dtype) -> None:
        self._bound, self._reduce, self._row = bound, reduce, shared.Row(heads, heads * channels)
        # where scores are of channels, several edges would have to have one target
        limit, shape = None if bound.score_is_of_heads else 1, (dtype, heads, channels)
        self._tiling = row_tiling.tiling(*shape, row_tiling.FORWARD_REGISTERS, False, limit)
        self._of_adjoint = row_tiling.tiling(*shape, row_tiling.BACKWARD_REGISTERS, False, limit)
        # by what decides the types of arguments beside the program and its operands
        self._launches: dict[tuple, Launch] = {}

    def forward(self, call: Call) -> tuple[Tensor, Tensor | None]:
        listed, like, tiling = call.graph, call.like, self._tiling
        out, statistics = like.new_empty(listed.num_targets, call.width), None
        if self._bound.softmax:
            statistics = like.new_empty(listed.num_targets, 2, call.heads)
        elif self._reduce in ('max', 'min'):
            statistics = like.new_empty(out.shape)
        edges, draws = _edges_of(listed, tiling.tiles), draws_of(call)
        arguments = edges, operands_of(call, TARGET), self._row, draws, shared.Results(out, statistics)
        key = None, draws.seed is None
        launch = self._launches.get(key)
        if launch is None:
            kernel = kernels.listed_forward_kernel(self._bound, tiling, self._reduce)
            launch = self._launches[key] = kernel.untested(arguments)
        launch.run(launch.pack(tiling.count, *arguments), 1)
        _check(listed)
        return out, statistics

    def backward(self, asked: Gradient) -> dict[str, Tensor | Product]:
        call, tiling = asked.call, self._of_adjoint
        like, of_messages = call.like, asked.grad_out
        plan = whole_plan(self._bound, frozenset(asked.needed), frozenset(asked.features))
        if self._reduce in ('max', 'min'):
            # no edge attains NaN, and what is divided by 0 there goes nowhere
            of_messages = of_messages / asked.statistics
        added, written, products, gradients = _places(self._bound, plan)
        found = {name: torch.zeros_like(call.tensors[name], memory_format=torch.contiguous_format) for name in added}
        # edges that are dropped for self-loops have no gradient
        rows = like.new_empty if call.graph.num_loops is None else like.new_zeros
        found |= {name: rows(call.tensors[name].shape) for name in written}
        weights = tuple([torch.zeros_like(call.products[name].weight) for name in products])
        features = tuple([self._for_features(call.products[name].features) for name in plan.features])
        panels = Panels(tuple([pack(call.products[name].weight, lanes_of(like.dtype)) for name in plan.features]))
        # summed over heads, of which each tile has some
        scalars = tuple([like.new_zeros(call.graph.num_edge_ids, tiling.count) for _ in plan.edge_scalars])
        edges, draws = _edges_of(call.graph, tiling.tiles), draws_of(call)
        of_targets = OfTargets(
            of_messages, asked.grad_out, asked.out, asked.statistics if self._bound.softmax else None
        )
        grads = gradients(found, scalars, weights, features)
        arguments = edges, operands_of(call, TARGET), self._row, draws, of_targets, grads, panels
        key = plan, draws.seed is None
        launch = self._launches.get(key)
        if launch is None:
            kernel = kernels.listed_backward_kernel(self._bound, tiling, plan, self._reduce)
            launch = self._launches[key] = kernel.untested(arguments)
        launch.run(launch.pack(tiling.count, *arguments), 1)
        for name, values in zip(plan.edge_scalars, scalars, strict=True):
            found[name] = values.sum(dim=1, keepdim=True)
        of_features = dict(zip(plan.features, features, strict=True))
        for name, values in zip(products, weights, strict=True):
            rows, _ = of_features.get(name, (None, None))
            if rows is not None:
                rows = rows.squeeze(1) if rows.shape[1] == 1 else rows.sum(dim=1)
            found[name] = Product(rows, values)
        _check(call.graph)
        return found

    def _for_features(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Room for the gradients of features: a row for each tile of channels; and none for loops."""
        rows, size = features.shape
        return features.new_empty(rows, self._of_adjoint.count, size), nothing(features.dtype)


_walks = functools.lru_cache(maxsize=1024)(_Walks)


def _edges_of(listed: Listed, tiles: Tensor) -> ListedEdges:
    edge_index, target_row, num_sources, num_targets, num_loops, num_walked = listed
    loops = -1 if num_loops is None else num_loops
    return ListedEdges(tiles, edge_index, target_row, num_targets, num_sources, loops, num_walked)


def _check(listed: Listed) -> None:
    if listed.num_edges < 0:
        raise IndexError('an edge names a node that is not there')


class _Places(NamedTuple):
    """The operands whose gradients are added up in memory, those of edges whose rows are written, the products, and
    ``gradients(found, scalars, weights, features)``: where all are."""

    added: tuple[str, ...]
    written: tuple[str, ...]
    products: tuple[str, ...]
    gradients: Callable[..., Gradients]


@functools.lru_cache(maxsize=1024)
def _places(bound: BoundProgram, plan: BackwardPlan) -> _Places:
    of_sources, of_targets = plan.by_end(bound)
    rows = tuple(name for name in plan.edge_channels if name in bound.edge_rows)
    fields = (
        *(plan.heads, of_sources, plan.added, of_targets, plan.edges, rows),
        *('scalars', 'weights', 'features', plan.parameters, plan.parameter_heads),
    )
    # written out, since it runs in every walk
    texts = [names if type(names) is str else f'({"".join(f"found[{n!r}], " for n in names)})' for names in fields]
    scope = {'Gradients': Gradients}
    exec(f'def gradients(found, scalars, weights, features):\n    return Gradients({", ".join(texts)})\n', scope)
    of_nodes = *plan.heads, *of_sources, *plan.added, *of_targets
    added = *of_nodes, *plan.edges, *plan.parameters, *plan.parameter_heads
    products = tuple(name for name in plan.edge_channels if name in bound.edge_products)
    return _Places(added, rows, products, scope['gradients'])
