"""From a layer's ``message`` and ``aggregate`` to a value of the intermediate representation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode

import pygfuse.compiler.functions.deviations
import pygfuse.compiler.functions.dropouts
import pygfuse.compiler.functions.equations
import pygfuse.compiler.functions.extremes
import pygfuse.compiler.functions.handlers
import pygfuse.compiler.functions.layouts
import pygfuse.compiler.functions.scattering
import pygfuse.compiler.functions.to_groups
import pygfuse.compiler.functions.turned_values  # noqa: F401  all register handlers
from pygfuse.compiler.capture.settings import Unwritten
from pygfuse.compiler.capture.watch import Guards, Watched
from pygfuse.compiler.functions.filled import is_made_of_rows, made_of_rows
from pygfuse.compiler.functions.leaves import bincount
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, found_in, in_order, leaf, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_SOURCES, NUM_TARGETS, Rows
from pygfuse.compiler.symbols.places import DEVICE, OfEdges, Place
from pygfuse.compiler.symbols.random_functions import is_drawn
from pygfuse.compiler.symbols.sharing import check_current
from pygfuse.compiler.symbols.symbol import HANDLERS, Recorded, Symbol
from pygfuse.ops.within_torch.autocast import off_everywhere


@dataclasses.dataclass(frozen=True)
class Given:
    """What a call brings under one name, and where its rows reside.

    Attributes:
        residency: ``'source'``, ``'target'``, ``'edge'`` or ``'shared'``.
        value: The tensor; of several that PyG has in one, before the dimension of rows, any.
        is_stacked: Whether it is one of several.
        is_of_all: Whether it has a row for each node, and not for each edge; sources and targets are the same then, or
            `of_row` says which of them these are.
        of_row: The row of the edges that names the nodes whose it is, where the other names others.
        of_edges: The argument that holds the edges whose it is, if these are not those that a call is along.
    """

    residency: str
    value: Tensor
    is_stacked: bool = False
    is_of_all: bool = False
    of_row: int | None = None
    of_edges: str | None = None


@dataclasses.dataclass(frozen=True)
class Several:
    """Several arguments in a tuple or a list.

    Attributes:
        kind: Its class.
        names: The names under which they are given.
    """

    kind: type
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Captured:
    """What a layer computes between its nodes' values and the aggregated messages, or new values of edges.

    Attributes:
        output: The result, a row for each target or each edge; or several, the values that are stored behind those
            that are returned.
        guards: What was read of the layer.
        stored: Where the values are stored that are: a module, and the name of its attribute.
        constants: The same of numbers, texts and None, and these.
        returns_several: Whether the layer returns a tuple.
        unread: How many results, the last ones, are computed for the statistics of normalisations alone.
        is_of_one_set: Whether sources and targets are the same nodes in all calls.
        is_of_two_sets: Whether they are known apart.
        gathers_apart: Whether what is gathered of nodes is another value than theirs, always.
        is_of_a_module: Whether a module's whole ``forward`` was captured.
        makes_edges: Whether it makes the edges of a call of those that it is given.
    """

    output: Node
    guards: Guards
    stored: tuple[tuple[Module, str], ...] = ()
    constants: tuple[tuple[Module, str, Any], ...] = ()
    returns_several: bool = False
    unread: int = 0
    is_of_one_set: bool = False
    is_of_two_sets: bool = False
    gathers_apart: bool = False
    is_of_a_module: ClassVar[bool] = False
    makes_edges: ClassVar[bool] = False

    @functools.cached_property
    def has_one_set(self) -> bool:
        """Whether sources and targets have to be the same nodes: what belongs to targets is read at the other ends."""
        found = in_order(self.output)
        if self.is_of_two_sets:
            return any(node.attributes.get('side') == TARGET for node in found)
        moved = in_order([node for node in found if node.op == 'of_sources'])
        return any(node.op in ('degree', 'reduce') for node in moved) or any('side' in n.attributes for n in found)

    @functools.cached_property
    def ends_early(self) -> bool:
        """Whether a result has no rows behind that of the last target that has an edge."""
        return any('ends_early' in node.attributes for node in in_order(self.output))

    @functools.cached_property
    def sizes(self) -> tuple[Node | int, ...]:
        """The numbers of rows that reductions were asked for which are others than that of the targets."""
        found = in_order(self.output)
        return tuple(
            [node.args[1] for node in found if node.op == 'resized']
            + [node.attributes['rows'] for node in found if 'rows' in node.attributes]
        )


class _WithoutNumbers(TorchFunctionMode):
    """Refuses to take numbers out of tensors, which in the next call may be others, and makes symbols of rows."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.__name__ in _READING and any(isinstance(a, Tensor) for a in args[:1]):
            raise Refused(f'{function.__name__} of a tensor')
        if function is torch.bincount and isinstance(args[0], Place):
            return bincount(*args, **(kwargs or {}))
        given = args, kwargs or {}
        if function is torch.sparse_coo_tensor and next(found_in(OfEdges, given), None) is not None:
            return HANDLERS['sparse_coo_tensor'](*args, **given[1])
        if is_made_of_rows(function, args):
            try:
                return made_of_rows(function, args, **given[1])
            except Refused:
                return _of_a_number(function, *given)
        has_rows, *others = (next(found_in(kind, given), None) is not None for kind in (Rows, Symbol, OfEdges, Tensor))
        if has_rows and not any(others):
            return _of_a_number(function, *given)
        if function in _MADE and not any(others):
            # what a call makes of numbers alone
            return Symbol(value('call', *args, function=function, keywords=tuple((kwargs or {}).items())), None)
        return function(*args, **(kwargs or {}))


def _of_a_number(function: Callable, args: Any, kwargs: dict[str, Any]) -> Any:
    """What a function makes of a number of edges or nodes: of it edges may be made anew."""
    if REMAKING.get() is not None:
        return REMAKING.get().record(function, args, kwargs, is_drawn(function.__name__))
    # it would draw that many numbers, or make a tensor of that size
    raise Refused(f'{function.__name__} of a number of edges or nodes')


# functions that make a tensor of numbers
_MADE = torch.zeros, torch.ones, torch.full, torch.eye, torch.arange, torch.linspace, torch.tensor, torch.scalar_tensor
_READING = {'item', 'tolist', 'numpy', '__array__', '__bool__', '__float__', '__int__', '__index__', '__iter__'}
_SIZES = {'size_i': NUM_TARGETS, 'dim_size': NUM_TARGETS, 'size_j': NUM_SOURCES}


def parameters_of(conv: Module) -> tuple[dict[str, inspect.Parameter], dict[str, inspect.Parameter]]:
    """The arguments of ``message`` and of ``aggregate`` without the messages."""
    message = dict(inspect.signature(conv.message).parameters)
    aggregate = dict(list(inspect.signature(conv.aggregate).parameters.items())[1:])
    # which PyG never passes
    aggregate.pop('aggr', None)
    return message, aggregate


def capture(conv: Module, given: Mapping[str, Any], guards: Guards | None = None) -> Captured:
    """Captures ``aggregate(message(...))`` of a layer.

    Args:
        conv: The layer.
        given: The arguments by the names in the signatures of its methods: a `Given`, or something that is no tensor.
        guards: Where to remember what was read of the layer, also if it is refused.

    Raises:
        Refused: If it has no intermediate representation; the text says why.
    """
    message, aggregate = parameters_of(conv)

    def run(watched: Watched) -> Any:
        # both are given the same tensors, into which a message may have written
        symbols: dict[str, Any] = {}
        out = watched.message(**_arguments(message, given, symbols))
        # several values are for an ``aggregate`` of the layer's own
        if not isinstance(out, (Symbol, tuple)):
            is_turned = isinstance(out, Recorded)
            said = 'values whose first dimension is not that of edges' if is_turned else f'a {type(out).__name__}'
            raise Refused(f'message returns {said}')
        return watched.aggregate(out, **_arguments(aggregate, given, symbols))

    return captured(run, conv, guards, device_of(given))


def capture_edge_update(conv: Module, given: Mapping[str, Any], guards: Guards | None = None) -> Captured:
    """Captures ``edge_update`` of a layer; arguments and errors are those of `capture`."""
    parameters = inspect.signature(conv.edge_update).parameters

    def run(watched: Watched) -> Any:
        return watched.edge_update(**_arguments(parameters, given, {}))

    return captured(run, conv, guards, device_of(given))


def device_of(given: Mapping[str, Any]) -> torch.device | None:
    """Where the tensors of a call are."""
    return next((item.value.device for item in given.values() if isinstance(item, Given)), None)


def captured(
    run: Callable[[Watched], Any],
    conv: Module,
    guards: Guards | None,
    device: torch.device | None,
    may_share: bool = False,
) -> Captured:
    """Captures what a function of a watched layer returns.

    Args:
        run: The function.
        conv: The layer.
        guards: Where to remember what was read of the layer, also if it is refused.
        device: Where the tensors of the call are.
        may_share: Whether it may return values that are of no edge and no node.

    Raises:
        Refused: If it has no intermediate representation.
    """
    guards = Guards() if guards is None else guards
    watched = Watched(conv, guards)
    # what is on within is the message's own
    token = DEVICE.set(torch.device('cpu') if device is None else device)
    # what code draws that is refused is drawn again
    with torch.enable_grad(), off_everywhere(), _drawing_apart(device), _WithoutNumbers():
        try:
            out = _attempted(run, watched, guards)
        except Refused:
            raise
        except RecursionError as error:
            raise Refused('it calls itself') from error
        except Exception as error:
            raise Refused(f'capturing it failed: {type(error).__name__}: {error}') from error
        finally:
            DEVICE.reset(token)
    returned = out if isinstance(out, tuple) else (out,)
    stored = [one for one in guards.stored.values() if isinstance(one[-1], Symbol)]
    constants = tuple(one for one in guards.stored.values() if not isinstance(one[-1], Symbol))
    found = [_result(one, may_share=may_share) for one in returned] + [
        _result(symbol, 'stores') for *_, symbol in stored
    ]
    _check_order(guards.normalised)
    unread = _unread(guards.normalised, found)
    if len(found) == 1 and not unread and out is not returned:
        return Captured(found[0], guards, constants=constants)
    if any(node.op == 'input' for node in found):
        raise Refused('it returns or stores what it was given')
    places = tuple((module, name) for module, name, _ in stored)
    return Captured(value('results', *found, *unread), guards, places, constants, out is returned, len(unread))


def _drawing_apart(device: torch.device | None) -> contextlib.AbstractContextManager:
    """Leaves the generators of random numbers of the CPU and of a device as they are."""
    return torch.random.fork_rng(devices=(device,) if device is not None and device.type == 'cuda' else ())


def _check_order(normalised: Sequence[Node]) -> None:
    """Raises a Refused where statistics may move in another order than that of the calls."""
    last: dict[int, Node] = {}
    for node in normalised:
        before = last.get(id(node.attributes['module']))
        if before is not None and not any(one is before for one in in_order(node)):
            raise Refused('a normalisation that is called twice, on values of which none follows from the other')
        last[id(node.attributes['module'])] = node


def _unread(normalised: Sequence[Node], results: Sequence[Node]) -> list[Node]:
    """What is normalised and then read by nobody: it is computed for the statistics that move."""
    unread: list[Node] = []
    # the last first, which may be computed of those before
    for node in reversed(normalised):
        if not any(node is one for one in in_order((*results, *unread))):
            unread.append(node)
    return unread[::-1]


def _attempted(run: Callable[[Any], Any], watched: Watched, guards: Guards) -> Any:
    """What a function returns; where it counts something up, it is captured again, which then knows of the counter."""
    while True:
        guards.begin()
        known = len(guards.counters)
        try:
            return run(watched)
        except Refused:
            if len(guards.counters) == known:
                raise


def _result(out: Any, how: str = 'returns', may_share: bool = False) -> Node:
    if isinstance(out, Symbol):
        check_current([out])
    if (may_share or how == 'stores') and isinstance(out, Symbol) and out.node.residency == SHARED:
        return out.node
    if not isinstance(out, Symbol) or out.rows is None:
        raise Refused('aggregate returns something else than a row for each target or edge')
    if out.rows == NUM_EDGES and out.node.residency in (SOURCE, TARGET) and not out.is_stacked:
        return value('on_edges', out.node)
    if (out.rows == NUM_EDGES) != (out.node.residency == EDGE):
        raise Refused(f'it {how} values of nodes for each edge')
    return out.node


def _arguments(
    parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any], symbols: dict[str, Any]
) -> dict[str, Any]:
    """What a method is called with; what stands for an argument is kept among the symbols."""
    found = {}
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise Refused('its methods take any arguments')
        if name in _SIZES:
            found[name] = Rows(_SIZES[name])
        elif name in ('index', 'edge_index_i', 'edge_index_j'):
            found[name] = Place(name != 'edge_index_j')
        elif name == 'ptr':
            found[name] = None
        elif name in ('edge_index', 'adj_t', 'size') and name not in given:
            raise Refused(f'it reads {name}')
        elif isinstance(given.get(name), Several):
            parts = [symbols.setdefault(part, symbol_of(part, given[part])) for part in given[name].names]
            found[name] = tuple(parts) if given[name].kind is tuple else Unwritten(name, parts, 'the caller')
        elif name in given:
            found[name] = symbols.setdefault(name, symbol_of(name, given[name]))
        elif parameter.default is parameter.empty:
            raise Refused(f'no {name} is given')
    return found


def symbol_of(name: str, argument: Any) -> Any:
    """What stands for an argument, with a row for each edge unless it is shared or of all nodes."""
    if not isinstance(argument, Given):
        return argument
    tensor, residency = argument.value, argument.residency
    shape = tensor.shape if residency == SHARED else tensor.shape[1:]
    node = leaf(name, residency, shape, tensor.dtype, name)
    if argument.is_of_all:
        return Symbol(node, NUM_SOURCES if residency == SOURCE else NUM_TARGETS)
    is_gathered = residency in (SOURCE, TARGET) and name[-2:] in ('_i', '_j')
    return Symbol(node, None if residency == SHARED else NUM_EDGES, argument.is_stacked, is_gathered)
