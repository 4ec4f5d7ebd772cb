"""The walks along few edges of calls that are all alike, whose arguments are packed by lines that are written once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.panels import pack
from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Draws
from pygfuse.codegen.launch_lines import LaunchLines
from pygfuse.cpu import kernels, row_tiling
from pygfuse.cpu.compilation.in_turn import InTurn, OnThreads
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.few_edges.listed_arguments import Given
from pygfuse.cpu.few_edges.told_launches import write_told
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

_NO_ROOMS: Mapping[str, str] = MappingProxyType({})


class Walks:
    """The walks of calls of one program with the same operands, over rows of one width and type.

    They are lines that are written out once (`pygfuse.codegen.launch_lines`), into which others are written: of few
    edges, gathering what a launch takes lasts longer than the walk.

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
        self._forward: dict[tuple, Callable] = {}
        self._backward: dict[tuple, tuple[Callable, tuple[str, ...]]] = {}

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
        is_shared = self.sharing(listed.edge_index.shape[1])
        key = draws.seed is None, is_shared
        run = self._forward.get(key)
        if run is None:
            lines = LaunchLines(InTurn, 'tensor_0', self._dtype.itemsize)
            self.write_forward(lines, is_shared, draws)
            run = self._forward[key] = self._function(lines, (), '(out, statistics, num_walked)')
        out, statistics, listed.walked[0] = run(*_ends_of(listed), *draws, *numbers, *tensors)
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
        there = tuple([tensor is not None for tensor in tensors])
        is_shared = self.sharing(listed.edge_index.shape[1])
        key = needed, features, draws.seed is None, there, out is None, is_shared
        prepared = self._backward.get(key)
        if prepared is None:
            lines = LaunchLines(InTurn, 'grad', self._dtype.itemsize)
            found = self.write_backward(lines, needed, features, there, out is not None, is_shared, draws)
            result = f'({"".join(f"{value}, " for value in found.values())}), num_walked'
            run = self._function(lines, ('grad', 'out', 'statistics'), result, {'Product': Product})
            prepared = self._backward[key] = run, tuple(found)
        run, names = prepared
        given = *_ends_of(listed), grad, out, statistics
        found, listed.walked[0] = run(*given, *draws, *numbers, *tensors)
        return dict(zip(names, found, strict=True))

    def sharing(self, num_edges: int) -> bool:
        """How threads share walks of so many edges, here whether two share each row: that, and so the bits, follows
        from the work alone."""
        return self._shares is not None and are_of_two_threads(num_edges, self.width)

    def write_forward(
        self, lines: LaunchLines, is_shared: bool, draws: Draws = NO_DRAWS, rooms: Mapping[str, str] = _NO_ROOMS
    ) -> None:
        """Writes lines that set ``out``, ``statistics``, which may be None, and ``num_walked``.

        What they read has the names ``edge_index``, ``target_row``, ``num_sources``, ``num_targets``, ``loops``, which
        is negative for none, ``tensor_0``, ..., ``number_0``, ... and those of what dropout draws. They raise an
        IndexError if an edge names a node that is not there.

        Args:
            lines: Where they are written.
            is_shared: Whether two threads share each row.
            draws: What dropout draws in one of the calls.
            rooms: In which rooms memory is reserved for results that are no tensors then, by their names.
        """
        given = Given(self._names, self._numbers, self._dtype, draws, [True] * len(self._names))
        statistics = None
        self._make_room(lines, 'out', ('num_targets', self.width), rooms)
        if self._bound.softmax or self._reduce in ('max', 'min'):
            sizes = ('2', self._row.total_heads) if self._bound.softmax else (self.width,)
            self._make_room(lines, 'statistics', ('num_targets', *sizes), rooms)
            statistics = given.of('statistics', self._dtype)
        else:
            lines.prepare('statistics = None')
        tiling = self._shares if is_shared else self._tiling
        results = shared.Results(given.of('out', self._dtype), statistics)
        arguments = *given.arguments(self._bound, self._row, tiling.tiles), results
        kernel = kernels.listed_forward_kernel(self._bound, tiling, self._reduce)
        launch = OnThreads(kernel.untested(arguments), _two_threads if is_shared else None)
        write_told(lines, launch, tiling.count, arguments, given.named, 'num_walked', given.rows)

    def write_backward(
        self,
        lines: LaunchLines,
        needed: frozenset[str],
        features: frozenset[str],
        there: Sequence[bool],
        reads_output: bool,
        is_shared: bool,
        draws: Draws = NO_DRAWS,
        addressed: Collection[str] = (),
    ) -> dict[str, str]:
        """Writes lines that set ``num_walked`` and what they find; returns expressions of that by operands' names.

        They read what those of `write_forward` read, and ``grad``, contiguous, ``out`` and ``statistics``; where a
        product is found, ``Product`` stands for its class.

        Args:
            lines, is_shared, draws: As there.
            needed, features: As of `backward`.
            there: Which of the tensors have values.
            reads_output: Whether ``out`` is there.
            addressed: Operands for whose gradients memory is reserved: they are no tensors.
        """
        bound, dtype, row = self._bound, self._dtype, self._row
        tiling = self._shares if is_shared else self._of_adjoint
        plan = whole_plan(bound, needed, features)
        places = _places_of(bound, plan)
        given = Given(self._names, self._numbers, dtype, draws, there)
        grad = of_messages = given.of('grad', dtype)
        if self._reduce in ('max', 'min'):
            # no edge attains NaN, and what is divided by 0 there goes nowhere
            lines.say('of_messages = grad / statistics')
            of_messages = given.of('of_messages', dtype)
        out = given.of('out', dtype) if reads_output else grad
        statistics = given.of('statistics', dtype) if bound.softmax else given.absent('statistics')
        room = _Room(self, lines, given, tiling.count, addressed)
        found = room.of_operands(places)
        weights = tuple(map(room.of_weight, places.products))
        of_features = tuple([(room.of_features(name), nothing(dtype)) for name in plan.features])
        panels = tuple(map(room.of_panel, plan.features))
        scalars = tuple(map(room.of_scalar, plan.edge_scalars))
        arguments = (
            *given.arguments(bound, row, tiling.tiles),
            OfTargets(of_messages, grad, out, statistics),
            places.gradients(found, scalars, weights, of_features),
            Panels(panels),
        )
        kernel = kernels.listed_backward_kernel(bound, tiling, plan, self._reduce)
        launch = OnThreads(kernel.untested(arguments), _two_threads if is_shared else None)
        write_told(lines, launch, tiling.count, arguments, given.named, 'num_walked', given.rows)
        return room.found()

    def _make_room(self, lines: LaunchLines, name: str, sizes: Sequence[str | int], rooms: Mapping[str, str]) -> None:
        if name in rooms:
            lines.reserve(name, ' * '.join(map(str, sizes)), rooms[name])
        else:
            lines.prepare(f'{name} = {lines.like}.new_empty({", ".join(map(str, sizes))})')

    def _function(
        self, lines: LaunchLines, more: Sequence[str], result: str, names: Mapping[str, object] = MappingProxyType({})
    ) -> Callable:
        ends = 'edge_index', 'target_row', 'num_sources', 'num_targets', 'loops'
        numbers = [f'number_{k}' for k in range(len(self._numbers))]
        tensors = [f'tensor_{k}' for k in range(len(self._names))]
        return lines.function(', '.join([*ends, *more, *Draws._fields, *numbers, *tensors]), result, names)


class _Room:
    """Where walks of the adjoint write, as lines.

    Args:
        walks: Of which program.
        lines: Where they are written.
        given: What stands for arguments.
        num_tiles: The number of tiles of a row.
        addressed: Operands for whose gradients memory is reserved.
    """

    def __init__(
        self, walks: Walks, lines: LaunchLines, given: Given, num_tiles: int, addressed: Collection[str]
    ) -> None:
        self._walks, self._lines, self._given, self._num_tiles = walks, lines, given, num_tiles
        self._addressed = addressed
        self._expressions: dict[str, str] = {}
        self._weights: dict[str, str] = {}
        self._rows: dict[str, str] = {}
        self._scalars: dict[str, str] = {}

    def of_operands(self, places: _Places) -> dict[str, Tensor]:
        """What stands for the gradients of operands that are no products, by their names."""
        bound, row, like = self._walks._bound, self._walks._row, self._lines.like
        widths = {HEADS: row.total_heads, CHANNELS: row.width, SCALAR: 1}
        for name in places.added:
            operand = bound.program.operands[name]
            self._write(name, self._count_of(operand.side), widths[operand.level], 'zeros', f'{like}.new_zeros')
        for level, names in places.parameters:
            if names:
                found = ''.join(f'{self._name(name)}, ' for name in names)
                self._lines.prepare(f'{found}= {like}.new_zeros({len(names)}, 1, {widths[level]}).unbind()')
        for name in places.written:
            # edges that are dropped for self-loops have no gradient
            self._write(
                name, self._count_of(EDGE), row.width, 'rows', f'({like}.new_empty if loops < 0 else {like}.new_zeros)'
            )
        return {name: self._given.of(found, self._walks._dtype) for name, found in self._expressions.items()}

    def of_weight(self, name: str) -> Tensor:
        """What stands for the gradient of a product's weight."""
        weight = self._tensor(f'{name}:weight')
        found = self._weights[name] = f'weight_{len(self._weights)}'
        return self._prepared(found, f'zeros_like({weight})')

    def of_features(self, name: str) -> Tensor:
        """What stands for those of its features: a row for each tile of channels."""
        features = self._tensor(f'{name}:features')
        found = self._rows[name] = f'features_{len(self._rows)}'
        return self._prepared(
            found, f'{self._lines.like}.new_empty({self._count_of(EDGE)}, {self._num_tiles}, {features}.shape[1])'
        )

    def of_panel(self, name: str) -> Tensor:
        """What stands for panels of its weight."""
        self._lines.knows('pack', pack)
        text = f'pack({self._tensor(f"{name}:weight")}, {lanes_of(self._walks._dtype)})'
        return self._prepared(f'panel_{name}', text)

    def of_scalar(self, name: str) -> Tensor:
        """What stands for the gradient of a number of each edge; heads add to it, of which each tile has some."""
        found = self._scalars[name] = f'scalar_{len(self._scalars)}'
        return self._prepared(found, f'{self._lines.like}.new_zeros({self._count_of(EDGE)}, {self._num_tiles})')

    def found(self) -> dict[str, str]:
        """Expressions of what was found, by operands' names."""
        expressions = dict(self._expressions)
        for name, values in self._scalars.items():
            self._lines.say(f'of_{values} = {values}.sum(dim=1, keepdim=True)')
            expressions[name] = f'of_{values}'
        for name, weight in self._weights.items():
            rows = self._rows.get(name)
            if rows is not None:
                self._lines.say(f'{rows} = {rows}.' + ('squeeze(1)' if self._num_tiles == 1 else 'sum(dim=1)'))
            self._lines.say(f'of_{weight} = Product({rows}, {weight})')
            expressions[name] = f'of_{weight}'
        return expressions

    def _name(self, name: str) -> str:
        found = self._expressions[name] = f'found_{len(self._expressions)}'
        return found

    def _write(self, name: str, count: str, width: int, room: str, make: str) -> None:
        found = self._name(name)
        if name in self._addressed:
            self._lines.reserve(found, f'{count} * {width}', room)
        else:
            self._lines.prepare(f'{found} = {make}({count}, {width})')

    def _prepared(self, name: str, text: str) -> Tensor:
        self._lines.prepare(f'{name} = {text}')
        return self._given.of(name, self._walks._dtype)

    def _tensor(self, name: str) -> str:
        return f'tensor_{self._walks._places[name]}'

    def _count_of(self, side: str) -> str:
        if side == EDGE:
            self._lines.once('num_ids = edge_index.shape[1] + (loops if loops > 0 else 0)')
        return {SOURCE: 'num_sources', TARGET: 'num_targets', EDGE: 'num_ids'}[side]


def _ends_of(listed: Listed) -> tuple[Tensor, int, int, int, int]:
    edge_index, target_row, num_sources, num_targets, num_loops, _ = listed
    return edge_index, target_row, num_sources, num_targets, -1 if num_loops is None else num_loops


walks_of = functools.lru_cache(maxsize=1024)(Walks)


def _two_threads() -> int:
    """All shares check and count the edges: they write the same number."""
    return min(2, torch.get_num_threads())


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
