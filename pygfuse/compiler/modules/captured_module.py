"""A module that is called with edges, captured whole: what it gathers of nodes, and what it reduces to them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Module

import pygfuse.compiler.functions.functions_of_edges  # noqa: F401  registers functions
from pygfuse.compiler.capture.layers import Captured, Given, captured, symbol_of
from pygfuse.compiler.capture.settings import Unwritten
from pygfuse.compiler.capture.surroundings import is_constant, rebound
from pygfuse.compiler.capture.watch import Guards, Watched
from pygfuse.compiler.forms.kept import all_in_order, computed_for
from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import EDGE, REDUCTIONS, SOURCE, TARGET, Node, results_of
from pygfuse.compiler.made_edges.remade import Made, OtherEdges, Remade, Run
from pygfuse.compiler.modules.data_objects import DataObject, Fields, store, stored_in
from pygfuse.compiler.modules.remaking import Remaking
from pygfuse.compiler.modules.remaking_of_copies import RemakingOfCopies
from pygfuse.compiler.modules.sparse_matrices import is_of_matrix, matrix_of
from pygfuse.compiler.modules.written_arguments import WrittenArguments
from pygfuse.compiler.passes.typed_maps import beside_others
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.copies import NO_COPIES, Copies, OfSeveral, check_copies, copies_of
from pygfuse.compiler.symbols.edge_tensors import REMAKING
from pygfuse.compiler.symbols.numbers_of_rows import NUM_SOURCES, NUM_TARGETS, Rows
from pygfuse.compiler.symbols.places import EdgeColumns, EdgeIndexRows, Place
from pygfuse.compiler.symbols.symbol import Rearranged, Symbol
from pygfuse.compiler.symbols.turned import Turned, in_one_tensor

# what stands for the edges among the arguments, by the class of what holds them, or for each of their rows
EDGES = {Tensor: 'edges', tuple: 'edges in a tuple', list: 'edges in a list'}
ROWS = 'row 0 of edges', 'row 1 of edges'
COLUMNS = 'columns of edges'
# how the names of edges begin that a module holds, and is not given
OF_MODULE = 'self.'


@dataclasses.dataclass(frozen=True)
class NumNodes:
    """A number of those nodes that a row of the edges names, where the other row names others."""

    of_row: int


@dataclasses.dataclass(frozen=True)
class Returned:
    """One of the things that a module returns.

    Attributes:
        place: Which of the values that are computed it is, or the name of an argument that is handed back.
        constant: What it is otherwise.
        copies: The dimensions before that of rows, of values of several copies.
        num_copies: How many copies there are of something that is the same of all.
        at: Which of its dimensions its rows are.
    """

    place: int | str | None = None
    constant: Any = None
    copies: tuple[int, ...] = ()
    num_copies: int = 1
    at: int = 0

    def of(self, computed: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
        """What it is in a call."""
        if self.place is None:
            return self.constant
        if isinstance(self.place, str):
            return arguments[self.place]
        found = computed[self.place]
        if self.num_copies > 1:
            found = found.narrow(0, 0, found.shape[0] // self.num_copies)
        if self.at:
            return found.movedim(0, self.at).contiguous()
        return found.unflatten(0, (*self.copies, -1)) if self.copies else found


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapturedModule(Captured):
    """A module that was captured.

    Attributes:
        returned: What it returns: a `Returned`, or several in tuples, lists and dicts.
        target_row: Which row of the edges holds the nodes to which it reduces.
        held: What it stores in objects that are arguments: the argument, the name there, and what.
        written: The arguments into which it writes, and what.
        remade_by: What is made of the edges of a call; None if they are read as they are.
        asks_for_edges: Whether it asks whether there are edges.
        for_layers: What makes those arguments of layers within it that are no values of a plan, by name.
    """

    returned: Any
    target_row: int
    held: tuple[tuple[str, str, Returned], ...] = ()
    written: tuple[tuple[str, Returned], ...] = ()
    remade_by: Remade | None = None
    asks_for_edges: bool = False
    for_layers: Mapping[str, Made] = dataclasses.field(default_factory=dict)
    is_of_a_module: ClassVar[bool] = True

    @property
    def makes_edges(self) -> bool:
        return self.remade_by is not None

    @functools.cached_property
    def calls_layers(self) -> bool:
        """Whether layers within it run as they are."""
        return any(node.op == 'layer' for node in all_in_order(self.output))

    def returns(self, computed: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
        """What a call returns, once it has written and stored what it writes into its arguments, and stores there.

        Args:
            computed: The values that are computed.
            arguments: What was given by name.
        """
        for name, one in self.written:
            arguments[name].copy_(one.of(computed, arguments))
        kept = [(arguments[argument], name, one.of(computed, arguments)) for argument, name, one in self.held]
        found = rebuilt(self.returned, lambda one: one.of(computed, arguments))
        for held, name, item in kept:
            store(held, name, item)
        return found


def capture_module(
    plain: type[Module],
    module: Module,
    arguments: Mapping[str, Any],
    target_row: int,
    run: Run,
    guards: Guards,
    to_both: bool = False,
    of_two_sets: bool = False,
    gathers_apart: bool = False,
    copies: OfSeveral = NO_COPIES,
) -> CapturedModule:
    """Captures the ``forward`` of a module.

    Args:
        plain: The class whose ``forward`` it is.
        module: The module.
        arguments: The arguments by name: a `Given`, one of `EDGES` or of `ROWS`, `OtherEdges`, `NumNodes`, something
            that is no tensor, or several in a tuple or list, or in `Fields`.
        target_row: Which row of the edges holds those nodes to which it reduces.
        run: What a call with these arguments makes.
        guards: Where to remember what was read of it, also if it is refused.
        to_both: Whether it may reduce to the other row, too.
        of_two_sets: Whether the rows of the edges name nodes of two sets.
        gathers_apart: Whether what it gathers of arguments is a value of its own, as nodes without edges are none.
        copies: What has several copies of the nodes, of which `run` has one after the other.

    Raises:
        Refused: If it has no intermediate representation, or reduces to the other row; the text says why.
    """
    device = run.edge_index.device
    others = _values_of_others(arguments)
    given = EdgeIndexRows(target_row, to_both, of_two_sets, gathers_apart), device, run, others
    if copies.sizes:
        return _captured(plain, module, arguments, guards, RemakingOfCopies(copies.sizes, *given), copies.names)
    remaking = Remaking(*given)
    try:
        return _captured(plain, module, arguments, guards, remaking)
    except Refused:
        if not remaking.meets_several:
            raise
    for made in remaking.numbers:
        # they are read again
        guards.numbers.pop(made, None)
    # what is gathered says along which edges
    remaking = Remaking(EdgeIndexRows(target_row, to_both, of_two_sets, True), device, run, others, reads_several=True)
    return _captured(plain, module, arguments, guards, remaking)


def _captured(
    plain: type[Module],
    module: Module,
    arguments: Mapping[str, Any],
    guards: Guards,
    remaking: Remaking,
    of_copies: Collection[str] = (),
) -> CapturedModule:
    """`capture_module` with what records what is made of the edges."""
    found: list[dict[str, Any]] = []

    def forward(watched: Watched) -> tuple[Symbol, ...]:
        symbols = dict(_symbols(arguments, remaking))
        symbols |= {name: Copies(symbols[name], remaking.copies) for name in of_copies}
        objects: dict[str, DataObject] = {}
        given = {name: _nested(name, item, symbols, objects) for name, item in arguments.items()}
        remaking.written = WrittenArguments({name: one for name, one in symbols.items() if isinstance(one, Symbol)})
        symbols |= objects
        guards.held = _of_module(module, {name: given.pop(name) for name in [*given] if name.startswith(OF_MODULE)})
        out = rebound(plain.forward, guards)(watched, **given)
        computed: list[Symbol] = []
        returned = _all_returned(out, computed, symbols)
        held = tuple(_held(objects, computed, symbols))
        written = tuple([(name, _returned(one, computed, {})) for name, one in remaking.written.symbols.items()])
        found.append({'returned': returned, 'held': held, 'written': written})
        if not computed:
            raise Refused('it returns nothing that it computes')
        return tuple(computed)

    guards.add(plain, 'forward', plain.forward)
    token = REMAKING.set(remaking)
    try:
        result = captured(forward, module, guards, remaking.device, may_share=True)
    finally:
        REMAKING.reset(token)
        guards.numbers |= remaking.numbers
    nodes = all_in_order(result.output)
    if remaking.copies:
        check_copies(nodes)
    walked = [node for node in nodes if node.op in REDUCTIONS or any(True for _ in computed_for(node))]
    walked += [node for node in results_of(result.output) if node.residency == EDGE]
    if not walked:
        in_layers = any(node.op == 'layer' for node in nodes)
        raise Refused('only its layers read edges, which run as they are' if in_layers else 'it reduces nothing')
    is_one_walk = len(walked) == 1 and not remaking.reads_several
    if not is_one_walk and any(node.op == 'typed_map' for node in nodes):
        # from pairs of types and sources lead other edges than those of the rest
        result = dataclasses.replace(result, output=beside_others(result.output))
        nodes = all_in_order(result.output)
    of_edges = {name for name, item in _leaves(arguments) if isinstance(item, Given) and item.residency == EDGE}
    # which a module holds, where it holds the edges
    own = [node.attributes['source'] for node in nodes if node.op == 'input' and node.residency == EDGE]
    of_edges |= {source for source in own if isinstance(source, tuple)}
    fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    edges = remaking.edges
    fields |= {'is_of_one_set': not edges.of_two_sets, 'is_of_two_sets': edges.of_two_sets}
    fields['gathers_apart'] = edges.gathers_apart
    if remaking.reads_several:
        _check_sets(result, nodes)
        fields['output'], fields['remade_by'] = remaking.sets_apart(result.output)
    else:
        fields['remade_by'] = remaking.remade(nodes, of_edges)
    if remaking.copies and fields['remade_by'] and any(one.residency == EDGE for one in results_of(result.output)):
        raise Refused('values of edges that are made anew, of several copies')
    fields |= {'asks_for_edges': remaking.asks_for_edges, 'for_layers': remaking.for_layers}
    return CapturedModule(**fields, **found[-1], target_row=edges.target_row)


def _of_module(module: Module, held: Mapping[str, Any]) -> dict[tuple[int, str], Any]:
    """What stands for edges that a module holds: by what holds them, and their name there."""
    found = {}
    for path, item in held.items():
        part, _, name = path.removeprefix(OF_MODULE).rpartition('.')
        found[id(module.get_submodule(part)), name] = item
    return found


def _check_sets(result: Captured, nodes: Sequence[Node]) -> None:
    """Raises a Refused where something is known of all edges that is so of each set alone."""
    if result.ends_early or result.sizes:
        raise Refused('a reduction of several sets of edges without the number of nodes')
    if any(node.op == 'largest' or node.attributes.get('counted') == EDGE for node in nodes):
        raise Refused('what is of all edges, of several sets of edges')


def _leaves(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments, those within others by their places or names behind the name."""
    for name, item in arguments.items():
        if isinstance(item, (tuple, list, Fields)):
            parts = item.items.items() if isinstance(item, Fields) else enumerate(item)
            yield from _leaves({f'{name}.{place}': one for place, one in parts})
        else:
            yield name, item


def _values_of_others(arguments: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of values of the edges that further arguments are, by the names of these."""
    leaves = dict(_leaves(arguments))
    others: dict[str, list[str]] = {item.name: [] for item in leaves.values() if isinstance(item, OtherEdges)}
    for name, item in leaves.items():
        if isinstance(item, Given) and item.of_edges is not None:
            others[item.of_edges].append(name)
    return others


def _symbols(arguments: Mapping[str, Any], remaking: Remaking) -> Iterator[tuple[str, Any]]:
    """What stands for arguments."""
    for name, item in _leaves(arguments):
        ends = _of_edges(item, remaking)
        yield name, symbol_of(name, _of_an_end(item, remaking.edges.target_row)) if ends is None else ends


def _of_edges(item: Any, remaking: Remaking) -> EdgeIndexRows | EdgeColumns | Place | None:
    edges = remaking.edges
    if isinstance(item, OtherEdges):
        return dataclasses.replace(edges, made=remaking.others[item.name])
    if item is COLUMNS:
        return edges.t()
    kind = next((kind for kind, of_kind in EDGES.items() if item is of_kind), None)
    if kind is not None:
        return dataclasses.replace(edges, kind=kind)
    return next((edges[k] for k, row in enumerate(ROWS) if item is row), None)


def _of_an_end(item: Any, target_row: int) -> Any:
    """What belongs to nodes of one of two sets, as one of sources or of targets."""
    if isinstance(item, NumNodes):
        return Rows(NUM_TARGETS if item.of_row == target_row else NUM_SOURCES)
    if not isinstance(item, Given) or item.of_row is None:
        return item
    return dataclasses.replace(item, residency=TARGET if item.of_row == target_row else SOURCE)


def _nested(name: str, item: Any, symbols: dict[str, Any], objects: dict[str, DataObject]) -> Any:
    """What stands for an argument; that of an object is added to those of others."""
    if isinstance(item, Fields) and is_of_matrix(item):
        return symbols.setdefault(name, matrix_of(item, {key: symbols[f'{name}.{key}'] for key in item.items}))
    if isinstance(item, Fields):
        held = {key: _nested(f'{name}.{key}', one, symbols, objects) for key, one in item.items.items()}
        return objects.setdefault(name, DataObject(name, item, held))
    if not isinstance(item, (tuple, list)):
        return symbols[name]
    parts = [_nested(f'{name}.{k}', one, symbols, objects) for k, one in enumerate(item)]
    return tuple(parts) if isinstance(item, tuple) else Unwritten(name, parts, 'the caller')


def _held(
    objects: Mapping[str, DataObject], computed: list[Symbol], symbols: Mapping[str, Any]
) -> Iterator[tuple[str, str, Returned]]:
    """What a module has stored in its arguments; what is computed is added to the list."""
    for argument, held in objects.items():
        for name, item in stored_in(held).items():
            yield argument, name, _returned(item, computed, symbols, 'stores')


def _all_returned(out: Any, computed: list[Symbol], symbols: Mapping[str, Any]) -> Any:
    """How what a module returns is found again, in the same structure."""
    if any(out is symbol for symbol in symbols.values()):
        return _returned(out, computed, symbols)
    return rebuilt(out, lambda part: _returned(part, computed, symbols))


def _returned(out: Any, computed: list[Symbol], symbols: Mapping[str, Any], how: str = 'returns') -> Returned:
    """How one thing is found again that a module returns or stores; what is computed is added to the list."""
    name = next((name for name, symbol in symbols.items() if symbol is out and not is_constant(symbol)), None)
    if name is not None:
        return Returned(name)
    if is_constant(out):
        return Returned(None, out)
    out = in_one_tensor(out)
    one = out.one if isinstance(out, Rearranged) else out
    if not isinstance(one, Symbol):
        raise Refused(f'it {how} a {type(out).__name__}')
    place = next((place for place, other in enumerate(computed) if other is one), len(computed))
    computed[place:] = computed[place:] or [one]
    return Returned(place, None, *copies_of(out), at=out.at if isinstance(out, Turned) else 0)
