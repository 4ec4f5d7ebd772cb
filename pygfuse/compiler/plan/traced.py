"""A plan as ``torch.compile`` traces it: lines of Python that hold no module, and find the layer's by their names.

torch traces neither the capture of a message nor its passes: a layer runs them while torch compiles, and hands over
what they give as a constant. What they read of the layer is read again where torch sees it: another value, another
trace.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from pygfuse.compiler.capture.namespaces import file_of
from pygfuse.compiler.capture.surroundings import NUMBERS
from pygfuse.compiler.capture.watch import is_changed
from pygfuse.compiler.forms.along_edges import AlongEdges
from pygfuse.compiler.forms.chunked import Chunked
from pygfuse.compiler.forms.weighed import RETURNED_WEIGHTS, Weighed
from pygfuse.compiler.ir.values import Node
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.plan.plan import Plan
from pygfuse.compiler.plan.written import written
from pygfuse.compiler.refusal import Refused
from pygfuse.ops import Edges

Place = tuple[str, ...]
_COMPARED = (*NUMBERS, tuple)


@dataclasses.dataclass(frozen=True)
class Traced:
    """A plan for any layer that reads as the one that was captured.

    Attributes:
        lines: What computes the results, as of `pygfuse.compiler.plan.written.written`.
        values: The places of modules, names and values of what was read of them and has to be the same.
        kinds: The same with the types of submodules.
        around: The same of numbers that are globals of a file, with the file.
        tensors: The same with the shapes and types of tensors.
        unhooked: The places of modules that were called.
        absent: The places of what held no attribute of a name, and the name.
        structures: The places of modules of which it was asked which they hold, and the names of these.
    """

    lines: Callable
    values: tuple[tuple[Place, str, Any], ...]
    kinds: tuple[tuple[Place, str, type], ...]
    around: tuple[tuple[types.ModuleType, str, Any], ...]
    tensors: tuple[tuple[Place, str, tuple[int, ...], torch.dtype], ...]
    unhooked: tuple[Place, ...]
    absent: tuple[tuple[Place, str], ...]
    structures: tuple[tuple[Place, tuple[str, ...]], ...]

    @staticmethod
    def of(plan: Plan, layer: Module) -> Traced:
        """A plan of a layer.

        Raises:
            Refused: If torch cannot trace it.
        """
        if plan.captured.ends_early:
            raise Refused('torch compiles no reduction without a size')
        if plan.captured.has_one_set and not plan.captured.is_of_one_set:
            raise Refused('torch compiles no degrees that are read at the other ends')
        if plan.captured.sizes:
            raise Refused('torch compiles no reduction to another number of rows than there are targets')
        if plan.captured.guards.compared:
            raise Refused('torch compiles no counter that is compared')
        if any(isinstance(form, Weighed) for form in plan.walks.values()):
            plan = Plan.of(plan.captured, without=(RETURNED_WEIGHTS,))
        for form in plan.walks.values():
            if isinstance(form, Network):
                _check_network(form)
            elif isinstance(form, (Chunked, AlongEdges)):
                _check_values(form.others if isinstance(form, AlongEdges) else form)
        _check_attributes(plan.steps)
        places = places_of(layer)
        values, kinds, around = [], [], []
        guards = plan.captured.guards
        for owner, name, value in guards.attributes:
            if not isinstance(owner, Module):
                around += _read_around(owner, name, value)
            elif isinstance(value, Module):
                kinds.append((_placed(owner, places), name, type(value)))
            else:
                values.append((_placed(owner, places), name, value))
        tensors = [(_placed(owner, places), name, tuple(shape), dtype) for owner, name, shape, dtype in guards.tensors]
        unhooked = [_placed(module, places) for module in guards.unhooked]
        absent = tuple([(_placed(owner, places), name) for owner, name in guards.absent])
        structures = tuple([(_placed(module, places), names) for module, names in guards.structures])
        lines = written(plan.steps, plan.walks, plan.output, plan.guarded, plan.captured, places)
        return Traced(
            *(lines, tuple(values), tuple(kinds), tuple(around), tuple(tensors), tuple(unhooked)), absent, structures
        )

    def holds(self, layer: Module) -> bool:
        """Whether everything would be read again of a layer."""
        for place, name, value in self.values:
            found = getattr(_at(layer, place), name, None)
            found = tuple(found) if isinstance(found, list) else found
            is_same = found == value if isinstance(value, _COMPARED) else found is value
            if type(found) is not type(value) or not is_same:
                return False
        if any(hasattr(_at(layer, place), name) for place, name in self.absent):
            return False
        if any(tuple(_at(layer, place)._modules) != names for place, names in self.structures):
            return False
        for file, name, value in self.around:
            if getattr(file, name, None) != value:
                return False
        for place, name, kind in self.kinds:
            if type(getattr(_at(layer, place), name, None)) is not kind:
                return False
        for place, name, shape, dtype in self.tensors:
            found = getattr(_at(layer, place), name, None)
            if not isinstance(found, Tensor) or tuple(found.shape) != shape or found.dtype != dtype:
                return False
        return not any(is_changed(_at(layer, place)) for place in self.unhooked)

    def run(self, layer: Module, edges: Edges, given: dict[str, Tensor]) -> Any:
        """The results of a call, as of `pygfuse.compiler.plan.plan.Plan.run`.

        Args:
            layer: The layer.
            edges: The edges.
            given: The tensors of the call by name.
        """
        return self.lines(edges, given, None, layer)


def places_of(layer: Module) -> dict[int, Place]:
    """The names by which modules are found from a layer, by the identity of the module."""
    return {id(module): tuple(name.split('.')) if name else () for name, module in layer.named_modules()}


def _placed(module: Module, places: dict[int, Place]) -> Place:
    if id(module) not in places:
        raise Refused(f'it reads a {type(module).__name__} that is no part of the layer')
    return places[id(module)]


def _at(layer: Module, place: Place) -> Module:
    for name in place:
        layer = getattr(layer, name)
    return layer


def _read_around(owner: Any, name: str, value: Any) -> list[tuple[types.ModuleType, str, Any]]:
    """What a trace reads again of what is around a layer: functions and classes are taken for what they are.

    Raises:
        Refused: For numbers of what no trace reads again.
    """
    if isinstance(owner, types.FunctionType) or not isinstance(value, _COMPARED):
        return []
    file = file_of(owner)
    if file is None:
        raise Refused(f'it reads {name}, which is no attribute of the layer')
    return [(file, name, value)]


def _check_network(network: Network) -> None:
    """Raises a Refused for networks that write statistics, or run by what their weights hold."""
    if network.batch_norms:
        raise Refused('torch compiles no batch normalisation of edges')
    if network.reduce == 'max':
        raise Refused('torch compiles no maximum of a network, whose weights decide whether edges tie')


def _check_values(values: Chunked) -> None:
    """Raises a Refused for values of edges that are more than a row that is kept for each."""
    if values.reduction is not None or values.draws:
        raise Refused(f'torch compiles no {values.title}')
    _check_attributes(values.order)


def _check_attributes(steps: Iterable[Node]) -> None:
    """Raises a Refused for steps that hold modules or tensors."""
    for node in steps:
        if node.op == 'softmax_of_sources':
            raise Refused('torch compiles no softmax of sources')
        attributes = {} if node.op == 'kept' else node.attributes
        if node.op != 'input' and any(map(_is_held, attributes.values())):
            raise Refused(f'torch compiles no {node.op}')


def _is_held(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(map(_is_held, value))
    return isinstance(value, (Module, Tensor))
