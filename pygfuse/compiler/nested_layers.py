"""Layers of PyG's within a module that is captured whole: each runs as it is, on the edges of the call.

Of the module they are a function of nodes; how a layer sends its messages is its own affair, and may be fused, too.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from pygfuse.compiler.edge_tensors import REMAKING
from pygfuse.compiler.ir import EDGE, SHARED, TARGET, Node, value
from pygfuse.compiler.places import DEVICE, NUM_EDGES, NUM_TARGETS, EdgeIndexRows
from pygfuse.compiler.propagates import propagates
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.sharing import check_current
from pygfuse.compiler.structure import rebuilt
from pygfuse.compiler.surroundings import is_constant
from pygfuse.compiler.symbols import Symbol

# under which name a plan finds the edges of a call among its tensors
EDGES_OF_CALL = 'the edges of the call'
# nodes and edges of an example
_EXAMPLE = (0, 1, 2, 0), (1, 2, 0, 2)


@dataclasses.dataclass(frozen=True)
class _Argument:
    """An argument of a layer that a plan computes, or the edges of the call, which have no place."""

    place: int | None


def is_layer(module: Module) -> bool:
    """Whether a module within another one is a layer that runs as it is: one that gathers itself is captured."""
    kind = type(module)
    if not isinstance(module, MessagePassing) or getattr(kind, 'is_captured_whole', False):
        return False
    return propagates(getattr(kind, 'plain', kind))


def layer_call(module: Module, args: tuple, kwargs: Mapping[str, Any]) -> Symbol:
    """The call of a layer, of values of all nodes: one more of them.

    Args:
        module: The layer.
        args, kwargs: What it is given: values of nodes, edges and their values as the call brings them, constants.

    Raises:
        Refused: If it is given anything else, or gives anything else than a row of floating numbers for each node.
    """
    remaking, name = REMAKING.get(), type(module).__name__
    if remaking is None or remaking.copies or remaking.edges.of_two_sets:
        raise Refused(f'it calls a layer ({name})')
    if torch._C._is_any_autocast_enabled():
        raise Refused('it computes under autocast of its own')
    if any('forward' in part.__dict__ for part in module.modules()):
        raise Refused(f'it calls a layer with a forward that was replaced ({name})')
    nodes: list[Node] = []
    template = rebuilt((args, dict(kwargs)), lambda item: _argument(item, nodes, name))
    found = _of_example(module, template, nodes)
    attributes = {'module': module, 'template': template, 'row': tuple(found.shape[1:]), 'of_type': found.dtype}
    node = Node('layer', tuple(nodes), attributes, TARGET, attributes['row'], found.dtype)
    return Symbol(node if torch.is_grad_enabled() else value('detach', node), NUM_TARGETS)


def _argument(item: Any, nodes: list[Node], name: str) -> Any:
    """What stands for an argument; a value is added to the nodes."""
    if isinstance(item, EdgeIndexRows) and item.made is REMAKING.get().edges.made and item.kind is Tensor:
        return _Argument(None)
    if isinstance(item, Symbol) and not item.is_stacked:
        check_current([item])
        nodes.append(_value_of(item, name))
        return _Argument(len(nodes) - 1)
    if is_constant(item):
        return item
    raise Refused(f'it calls a layer ({name}) with something else than nodes and the edges of the call')


def _value_of(symbol: Symbol, name: str) -> Node:
    """A value that a layer may be given: one of edges has a row for each of those of the call."""
    node = symbol.node
    is_brought = node.op == 'input' and node.residency == EDGE
    if symbol.rows == NUM_EDGES and not is_brought and (node.residency != EDGE or REMAKING.get().reads_several):
        raise Refused(f'it calls a layer ({name}) with values of nodes for each edge, or of several sets of edges')
    return node


def _of_example(module: Module, template: Any, nodes: list[Node]) -> Tensor:
    """What a copy of a layer gives of a few nodes and edges."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        edge_index = torch.tensor(_EXAMPLE, device=DEVICE.get())
        values = [torch.zeros(_rows_of(node) + node.shape, dtype=node.dtype, device=DEVICE.get()) for node in nodes]
        try:
            layer = copy.deepcopy(module).eval()
            for part in layer.modules():
                part._forward_hooks.clear()
                part._forward_pre_hooks.clear()
            found = layer_of(layer, template, {EDGES_OF_CALL: edge_index}, values)
        except Exception as error:
            raise Refused(f'{type(module).__name__} of a few nodes: {type(error).__name__}: {error}') from error
    if not isinstance(found, Tensor) or found.shape[:1] != (3,) or not found.dtype.is_floating_point:
        raise Refused(f'{type(module).__name__} returns something else than a row for each node')
    return found


def _rows_of(node: Node) -> tuple[int, ...]:
    return {SHARED: (), EDGE: (4,)}.get(node.residency, (3,))


def layer_of(module: Module, template: Any, given: Mapping[str, Tensor], values: Any) -> Any:
    """What a layer returns in a call.

    Args:
        module: The layer.
        template: Its arguments.
        given: The tensors of the call, the edges among them.
        values: What the plan has computed for it.
    """

    def argument(item: Any) -> Any:
        if not isinstance(item, _Argument):
            return item
        return given[EDGES_OF_CALL] if item.place is None else values[item.place]

    args, kwargs = rebuilt(template, argument)
    return module(*args, **kwargs)
