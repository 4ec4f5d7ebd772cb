"""Layers of PyG's within a module that is captured whole: each runs as it is, on edges of the call or made of these.

Of the module they are functions of nodes and edges; how a layer sends its messages is its own affair, and may be fused,
too. What it is given that no plan computes, such as edges with self-loops, is made before the plan runs.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from pygfuse.compiler.capture.propagates import propagates
from pygfuse.compiler.capture.surroundings import is_constant
from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, value
from pygfuse.compiler.made_edges.examples import EXAMPLE_NODES, example_edges
from pygfuse.compiler.made_edges.remade import Made
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, OfEdges
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_SOURCES, NUM_TARGETS, Rows
from pygfuse.compiler.symbols.places import DEVICE
from pygfuse.compiler.symbols.sharing import check_current
from pygfuse.compiler.symbols.symbol import Symbol

# rows of an example: of targets, and of sources that are other nodes
_NODES = {TARGET: EXAMPLE_NODES[0], SOURCE: EXAMPLE_NODES[0] + 1}
_OF_LAYER = {
    TARGET: ('targets_of_layer', NUM_TARGETS),
    SOURCE: ('sources_of_layer', NUM_SOURCES),
    EDGE: ('edges_of_layer', NUM_EDGES),
}


@dataclasses.dataclass(frozen=True)
class _Computed:
    """An argument of a layer that a plan computes."""

    place: int


@dataclasses.dataclass(frozen=True)
class _MadeBefore:
    """An argument of a layer that is made before a plan runs."""

    name: str


def is_layer(module: Module) -> bool:
    """Whether a module within another one is a layer that runs as it is: one that gathers itself is captured."""
    kind = type(module)
    if not isinstance(module, MessagePassing) or getattr(kind, 'is_captured_whole', False):
        return False
    return propagates(getattr(kind, 'plain', kind))


def layer_call(module: Module, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """The call of a layer: values of all nodes, or of the edges of the call, one or several.

    Args:
        module: The layer.
        args, kwargs: What it is given: values of nodes, edges and their values, constants.

    Raises:
        Refused: If it is given anything else, or gives anything else than rows of floating numbers.
    """
    remaking, name = REMAKING.get(), type(module).__name__
    if remaking is None or remaking.copies:
        raise Refused(f'it calls a layer ({name})')
    if torch._C._is_any_autocast_enabled():
        raise Refused('it computes under autocast of its own')
    if any('forward' in part.__dict__ for part in module.modules()):
        raise Refused(f'it calls a layer with a forward that was replaced ({name})')
    nodes: list[Node] = []
    template = rebuilt((args, dict(kwargs)), lambda item: _argument(item, nodes, name))
    edges = _edges_in(template)
    found, others = _of_example(module, template, edges, nodes)
    if _forms_of(found) != _forms_of(others):
        raise Refused(f'{name} returns something else in training')
    return _result(value('layer', *nodes, module=module, template=template), found, edges, name)


def _argument(item: Any, nodes: list[Node], name: str) -> Any:
    """What stands for an argument; a value that a plan computes is added to the nodes."""
    if isinstance(item, Symbol) and not item.is_stacked:
        check_current([item])
        made = _made_of_edges(item)
        if made is not None:
            return made
        of_nodes = item.rows == NUM_EDGES and item.node.residency != EDGE
        nodes.append(value('on_edges', item.node) if of_nodes else item.node)
        return _Computed(len(nodes) - 1)
    if is_constant(item) and not isinstance(item, Rows):
        return item
    if not isinstance(item, (OfEdges, Rows)) or (isinstance(item, OfEdges) and item.kind is not Tensor):
        raise Refused(f'it calls a layer ({name}) with something else than nodes, edges and their values')
    return _made_before(item)


def _made_of_edges(symbol: Symbol) -> _MadeBefore | None:
    """A value that a call brings for each edge, or edges tell, of which the plan may not be; None of any other."""
    node = symbol.node
    is_brought = node.op == 'input' and isinstance(node.attributes['source'], str)
    if symbol.rows != NUM_EDGES or (node.residency == EDGE and not is_brought):
        return None
    with contextlib.suppress(Refused):
        made = _made_before(symbol)
        REMAKING.get().written.forbid(symbol)
        return made
    return None


def _made_before(item: Any) -> _MadeBefore:
    remaking = REMAKING.get()
    with torch._C.DisableTorchFunction():
        made = remaking.said(item)
    names = {one: name for name, one in remaking.for_layers.items()}
    name = names.get(made, f'{len(names)} for layers')
    remaking.for_layers[name] = made
    return _MadeBefore(name)


def _edges_in(template: Any) -> Made | None:
    """The first argument that is edges."""
    made = [REMAKING.get().for_layers[one.name] for one in _parts_of(template) if isinstance(one, _MadeBefore)]
    return next((one for one in made if one.is_whole and one.examples[0].dim() == 2), None)


def _of_example(module: Module, template: Any, edges: Made | None, nodes: list[Node]) -> tuple[Any, Any]:
    """What a copy of a layer gives of a few nodes and edges, in eval mode and in training; calls may be in both."""
    device, rows_of = DEVICE.get(), _rows_of(edges)

    def on_device(made: Made) -> Any:
        example = made.examples[0]
        if not isinstance(example, Tensor):
            return example
        # numbers that name no nodes may be places in tables of any size
        is_place = made.end is None and not made.is_whole and not example.is_floating_point()
        return (torch.zeros_like(example) if is_place else example).to(device)

    with torch._C.DisableTorchFunction(), torch.no_grad():
        values = [torch.zeros((*rows_of[n.residency], *n.shape), dtype=n.dtype, device=device) for n in nodes]
        try:
            made = {name: on_device(one) for name, one in REMAKING.get().for_layers.items()}
            layer = copy.deepcopy(module)
            for part in layer.modules():
                part._forward_hooks.clear()
                part._forward_pre_hooks.clear()
            return tuple([_called(layer.train(mode), template, made, values) for mode in (False, True)])
        except Exception as error:
            said = f'{type(error).__name__}: {error}'
            raise Refused(f'a trial of {type(module).__name__} along a few edges raised {said}') from error


def _rows_of(edges: Made | None) -> dict[str, tuple[int, ...]]:
    """The rows of values in an example of a call along these edges, by residency."""
    example = example_edges(0) if edges is None else edges.examples[0]
    found = {SHARED: (), EDGE: (example.shape[1],), **{of: (rows,) for of, rows in _NODES.items()}}
    return found if REMAKING.get().edges.of_two_sets else {of: rows for of, rows in found.items() if of != SOURCE}


def _parts_of(found: Any) -> list[Any]:
    """What is in a structure, in order."""
    parts: list[Any] = []
    rebuilt(found, parts.append)
    return parts


def _forms_of(found: Any) -> list[Any]:
    return [(part.shape, part.dtype) if isinstance(part, Tensor) else part for part in _parts_of(found)]


def _result(layer: Node, found: Any, edges: Made | None, name: str) -> Any:
    """What stands for what a layer returns."""
    places, rows_of = iter(range(len(_parts_of(found)))), _rows_of(edges)

    def part(example: Any) -> Any:
        place = next(places)
        if is_constant(example):
            return example
        is_row = isinstance(example, Tensor) and example.dim() > 0 and example.dtype.is_floating_point
        kinds = [of for of, rows in rows_of.items() if is_row and rows == example.shape[:1]]
        if len(kinds) != 1 or (EDGE in kinds and edges is None):
            raise Refused(f'{name} returns something else than a row for each node or edge')
        (of,) = kinds
        op, rows = _OF_LAYER[of]
        along = {'end': edges.row_of(0)} if of == EDGE else {}
        node = value(op, layer, place=place, row=tuple(example.shape[1:]), of_type=example.dtype, **along)
        return Symbol(node if torch.is_grad_enabled() else value('detach', node), rows)

    return rebuilt(found, part)


def layer_of(module: Module, template: Any, given: Mapping[str, Any], values: Any) -> list[Any]:
    """The parts of what a layer returns in a call.

    Args:
        module: The layer.
        template: Its arguments.
        given: What is made before a plan runs.
        values: What the plan has computed for it.
    """
    return _parts_of(_called(module, template, given, values))


def _called(module: Module, template: Any, given: Mapping[str, Any], values: Any) -> Any:
    def argument(item: Any) -> Any:
        if isinstance(item, _Computed):
            return values[item.place]
        return given[item.name] if isinstance(item, _MadeBefore) else item

    args, kwargs = rebuilt(template, argument)
    return module(*args, **kwargs)
