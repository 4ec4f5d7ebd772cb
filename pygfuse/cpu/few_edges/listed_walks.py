"""The walks along few edges of calls that are all alike, whose arguments are packed by lines that are written once."""

from __future__ import annotations

import array
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.panels import pack
from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Draws
from pygfuse.codegen.packing import written_packer
from pygfuse.cpu import kernels, row_tiling
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.few_edges.listed_arguments import Given
from pygfuse.cpu.operands import NO_DRAWS
from pygfuse.cpu.vectors.panels import lanes_of
from pygfuse.cpu.walks.arguments import Panels
from pygfuse.cpu.walks.listed_backward import Gradients, OfTargets
from pygfuse.graph.listed import Listed
from pygfuse.mapping.few_edges import are_of_two_threads
from pygfuse.program.adjoint import BackwardPlan, whole_plan
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, SOURCE, TARGET, BoundProgram
from pygfuse.program.trace import CHANNELS, HEADS, SCALAR


class Walks:
    """The walks of calls of one program with the same operands, over rows of one width and type.

    What a launch takes is packed by lines that are written out once (`pygfuse.codegen.packing.written_packer`): of few
    edges, gathering it takes longer than the walk.

    Args:
        bound: The program.
        names: The names of the tensors that calls bring, in their order; of a product ``name:features`` and
            ``name:weight``.
        numbers: The names of the numbers that they bring.
        heads, channels, reduce: As of a `Call`.
        dtype: The type of all tensors.

    Attributes:
        width: Values in a row of channels.
    """

    def __init__(
        self, bound: BoundProgram, names: tuple[str, ...], numbers: tuple[str, ...], heads: int, channels: int,
        reduce: str, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self._bound, self._names, self._numbers, self._reduce = bound, names, numbers, reduce
        self.width, self._dtype = heads * channels, dtype
        self._row = shared.Row(heads, self.width)
        # where scores are of channels, several edges would have to have one target
        limit, shape = None if bound.score_is_of_heads else 1, (dtype, heads, channels)
        self._tiling = row_tiling.tiling(*shape, row_tiling.FORWARD_REGISTERS, False, limit)
        self._of_adjoint = row_tiling.tiling(*shape, row_tiling.BACKWARD_REGISTERS, False, limit)
        # a score is one for all of a head, so that a share would compute it again
        self._shares = row_tiling.shares(dtype, channels, limit) if heads == 1 and bound.score is None else None
        self._places = {name: place for place, name in enumerate(names)}
        # by whether weights of edges are dropped, and whether two threads share the row
        self._forward: dict[tuple[bool, bool], tuple[Launch, Callable]] = {}
        self._backward: dict[tuple, _Backward] = {}

    def forward(
        self, listed: Listed, tensors: Sequence[Tensor], numbers: Iterable[float], draws: Draws = NO_DRAWS
    ) -> tuple[Tensor, Tensor | None]:
        """The output and its statistics.

        Args:
            listed: The edges.
            tensors: The operands in the order of their names, contiguous; of edges a row for each.
            numbers: The numbers in the order of their names.
            draws: What dropout draws.

        Raises:
            IndexError: If an edge names a node that is not there. Nothing has been read by it.
        """
        like, (heads, width), statistics = tensors[0], self._row, None
        edge_index, target_row, num_sources, num_targets, num_loops, walked = listed
        out = like.new_empty(num_targets, width)
        if self._bound.softmax:
            statistics = like.new_empty(num_targets, 2, heads)
        elif self._reduce in ('max', 'min'):
            statistics = torch.empty_like(out)
        is_shared = self._is_shared(edge_index)
        key = draws.seed is None, is_shared
        launch, packed = self._forward.get(key) or self._forward.setdefault(
            key, self._prepared_forward(draws, is_shared)
        )
        loops = -1 if num_loops is None else num_loops
        block = packed(
            *(edge_index, target_row, num_targets, num_sources, loops, walked.buffer_info()[0], out, statistics),
            *(*draws, *numbers, *tensors),
        )
        launch.run(block, _threads_for(is_shared))
        _check(walked)
        return out, statistics

    def backward(
        self,
        listed: Listed,
        tensors: Sequence[Tensor | None],
        numbers: Iterable[float],
        grad: Tensor,
        out: Tensor | None,
        statistics: Tensor | None,
        needed: frozenset[str],
        features: frozenset[str],
        draws: Draws = NO_DRAWS,
    ) -> dict[str, Tensor | Product]:
        """The gradients of operands by name, of a product those of its features, or None, and of its weight.

        Args:
            listed, tensors, numbers, draws: As of `forward`; tensors that the adjoint does not read may be None.
            grad: The gradient of the output, contiguous.
            out, statistics: What forward gave; the output may be None where the adjoint does not read it.
            needed: The operands.
            features: The products whose features' gradients are needed.

        Raises:
            IndexError: As of `forward`.
        """
        # no edge attains NaN, and what is divided by 0 there goes nowhere
        of_messages = grad / statistics if self._reduce in ('max', 'min') else grad
        out = grad if out is None else out
        there = tuple([tensor is not None for tensor in tensors])
        is_shared = self._is_shared(listed.edge_index)
        key = needed, features, draws.seed is None, there, is_shared
        prepared = self._backward.get(key)
        if prepared is None:
            prepared = self._backward[key] = self._prepared_backward(needed, features, draws, there, is_shared)
        edge_index, target_row, num_sources, num_targets, num_loops, walked = listed
        num_ids = listed.num_edge_ids
        sizes = {SOURCE: num_sources, TARGET: num_targets, EDGE: num_ids}
        found = {name: grad.new_zeros(sizes[side], width) for name, side, width in prepared.added}
        room = self._room_for_more(prepared, found, listed, tensors, grad) if prepared.has_more else _NO_ROOM
        loops = -1 if num_loops is None else num_loops
        block = prepared.packed(
            *(edge_index, target_row, num_targets, num_sources, loops, walked.buffer_info()[0]),
            *(of_messages, grad, out, statistics, *draws, *numbers, *tensors),
            *(*found.values(), *room.weights, *room.features, *room.panels, *room.scalars),
        )
        prepared.launch.run(block, _threads_for(is_shared))
        if prepared.has_more:
            _add_more(prepared, found, room)
        _check(walked)
        return found

    def _room_for_more(
        self, prepared: _Backward, found: dict[str, Tensor | Product], listed: Listed,
        tensors: Sequence[Tensor | None], grad: Tensor,
    ) -> _Room:  # fmt: skip
        """Where the gradients of what is no operand of nodes are written; those that need no more are found."""
        lanes, places, num_ids, count = lanes_of(self._dtype), self._places, listed.num_edge_ids, prepared.num_tiles
        for names, width in prepared.parameters:
            found.update(zip(names, grad.new_zeros(len(names), 1, width).unbind(), strict=True))
        # edges that are dropped for self-loops have no gradient
        rows = grad.new_empty if listed.num_loops is None else grad.new_zeros
        for name in prepared.written:
            found[name] = rows(num_ids, self._row.width)
        weights = [torch.zeros_like(tensors[places[f'{name}:weight']]) for name in prepared.products]
        of_features, panels = [], []
        for name in prepared.features:
            # a row for each tile of channels
            of_features.append(grad.new_empty(num_ids, count, tensors[places[f'{name}:features']].shape[1]))
            panels.append(pack(tensors[places[f'{name}:weight']], lanes))
        # summed over heads, of which each tile has some
        return _Room(weights, of_features, panels, [grad.new_zeros(num_ids, count) for _ in prepared.scalars])

    def _is_shared(self, edge_index: Tensor) -> bool:
        """Whether two threads share the row: that, and so the bits, follows from the work alone."""
        return self._shares is not None and are_of_two_threads(edge_index.shape[1], self.width)

    def _prepared_forward(self, draws: Draws, is_shared: bool) -> tuple[Launch, Callable]:
        """The launch, and ``packed(edge_index, target_row, ..., out, statistics, seed, ..., numbers, tensors)``."""
        given = Given(self._names, self._numbers, self._dtype, draws, [True] * len(self._names))
        out = given.of('out', self._dtype)
        has_statistics = self._bound.softmax or self._reduce in ('max', 'min')
        statistics = given.of('statistics', self._dtype) if has_statistics else given.absent('statistics')
        results = shared.Results(out, statistics)
        tiling = self._shares if is_shared else self._tiling
        arguments = *given.arguments(self._bound, self._row, tiling.tiles), results
        kernel = kernels.listed_forward_kernel(self._bound, tiling, self._reduce)
        order = *given.of_edges, 'out', 'statistics', *given.of_operands
        return kernel.untested(arguments), written_packer(tiling.count, arguments, given.named, order)

    def _prepared_backward(
        self, needed: frozenset[str], features: frozenset[str], draws: Draws, there: Sequence[bool], is_shared: bool
    ) -> _Backward:
        bound, dtype, row = self._bound, self._dtype, self._row
        tiling = self._shares if is_shared else self._of_adjoint
        plan = whole_plan(bound, needed, features)
        places = _places_of(bound, plan)
        given = Given(self._names, self._numbers, dtype, draws, there)
        grad = given.of('grad', dtype)
        of_messages = given.of('of_messages', dtype)
        out = given.of('out', dtype)
        statistics = given.of('statistics', dtype) if bound.softmax else given.absent('statistics')
        names = *places.added, *[name for _, names in places.parameters for name in names], *places.written
        found = {name: given.of(f'found_{k}', dtype) for k, name in enumerate(names)}
        weights = tuple([given.of(f'weight_{k}', dtype) for k in range(len(places.products))])
        of_features = tuple([(given.of(f'features_{k}', dtype), nothing(dtype)) for k in range(len(plan.features))])
        panels = tuple([given.of(f'panel_{k}', dtype) for k in range(len(plan.features))])
        scalars = tuple([given.of(f'scalar_{k}', dtype) for k in range(len(plan.edge_scalars))])
        arguments = (
            *given.arguments(bound, row, tiling.tiles),
            OfTargets(of_messages, grad, out, statistics),
            places.gradients(found, scalars, weights, of_features),
            Panels(panels),
        )
        kernel = kernels.listed_backward_kernel(bound, tiling, plan, self._reduce)
        order = (
            *(*given.of_edges, 'of_messages', 'grad', 'out', 'statistics', *given.of_operands),
            *[f'found_{k}' for k in range(len(found))],
            *[f'weight_{k}' for k in range(len(weights))],
            *[f'features_{k}' for k in range(len(of_features))],
            *[f'panel_{k}' for k in range(len(panels))],
            *[f'scalar_{k}' for k in range(len(scalars))],
        )
        widths = {HEADS: row.total_heads, CHANNELS: row.width, SCALAR: 1}
        sides = {name: bound.program.operands[name] for name in places.added}
        parameters = tuple([(names, widths[level]) for level, names in places.parameters if names])
        return _Backward(
            kernel.untested(arguments),
            written_packer(tiling.count, arguments, given.named, order),
            tiling.count,
            tuple([(name, operand.side, widths[operand.level]) for name, operand in sides.items()]),
            parameters,
            places.written,
            places.products,
            plan.features,
            plan.edge_scalars,
            any((parameters, places.written, places.products, plan.features, plan.edge_scalars)),
        )


class _Backward(NamedTuple):
    """A prepared walk of the adjoint.

    Attributes:
        launch: The launch.
        packed: Packs what it takes.
        num_tiles: The number of tiles of a row.
        added: The operands of nodes and edges whose gradients are added up in memory, with their sides and widths.
        parameters: Those of no node and edge of one width.
        written: Those of edges whose rows are written.
        products: The products.
        features: Those of them whose features have a gradient.
        scalars: The numbers of edges.
        has_more: Whether there is any of the last five.
    """

    launch: Launch
    packed: Callable
    num_tiles: int
    added: tuple[tuple[str, str, int], ...]
    parameters: tuple[tuple[tuple[str, ...], int], ...]
    written: tuple[str, ...]
    products: tuple[str, ...]
    features: tuple[str, ...]
    scalars: tuple[str, ...]
    has_more: bool


class _Room(NamedTuple):
    """Where walks of the adjoint write gradients of weights, of features and of numbers of edges for each tile, and
    panels of weights that they read."""

    weights: Sequence[Tensor]
    features: Sequence[Tensor]
    panels: Sequence[Tensor]
    scalars: Sequence[Tensor]


_NO_ROOM = _Room((), (), (), ())


def _add_more(prepared: _Backward, found: dict[str, Tensor | Product], room: _Room) -> None:
    """Adds to what was found the sums over tiles, and products."""
    for name, values in zip(prepared.scalars, room.scalars, strict=True):
        found[name] = values.sum(dim=1, keepdim=True)
    of_products = dict(zip(prepared.features, room.features, strict=True))
    for name, values in zip(prepared.products, room.weights, strict=True):
        rows = of_products.get(name)
        if rows is not None:
            rows = rows.squeeze(1) if prepared.num_tiles == 1 else rows.sum(dim=1)
        found[name] = Product(rows, values)


walks_of = functools.lru_cache(maxsize=1024)(Walks)


def _threads_for(is_shared: bool) -> int:
    """All shares check and count the edges: they write the same number."""
    return min(2, torch.get_num_threads()) if is_shared else 1


def _check(walked: array.array) -> None:
    if walked[0] < 0:
        raise IndexError('an edge names a node that is not there')


class _Places(NamedTuple):
    """The operands of nodes and edges whose gradients are added up in memory, the parameters by level, the operands of
    edges whose rows are written, the products, and ``gradients(found, scalars, weights, features)``: where all are."""

    added: tuple[str, ...]
    parameters: tuple[tuple[str, tuple[str, ...]], ...]
    written: tuple[str, ...]
    products: tuple[str, ...]
    gradients: Callable[..., Gradients]


@functools.lru_cache(maxsize=1024)
def _places_of(bound: BoundProgram, plan: BackwardPlan) -> _Places:
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
    added, parameters = (*of_nodes, *plan.edges), ((CHANNELS, plan.parameters), (HEADS, plan.parameter_heads))
    products = tuple(name for name in plan.edge_channels if name in bound.edge_products)
    return _Places(added, parameters, rows, products, scope['gradients'])
