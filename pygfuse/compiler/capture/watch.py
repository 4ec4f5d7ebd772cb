"""A layer as its message function sees it while it is captured: what is read of it is remembered."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Module, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.inspector import Inspector
from torch_geometric.nn import Sequential as PyGSequential
from torch_geometric.nn.aggr import Aggregation, MultiAggregation

from pygfuse._lib.hooks import has_hooks
from pygfuse.compiler.capture.namespaces import Keys, Namespace, holds_settings
from pygfuse.compiler.capture.nested_layers import is_layer, layer_call
from pygfuse.compiler.capture.settings import Settings, Unwritten
from pygfuse.compiler.capture.surroundings import (
    NUMBERS,
    is_constant,
    is_known,
    method_of,
    rebound,
    unscripted,
    watched_value,
)
from pygfuse.compiler.functions.leaves import (
    NORMS,
    aggregation_call,
    batch_norm_call,
    norm_call,
    sequential_call,
)
from pygfuse.compiler.ir.values import EDGE, PARTS_OF_LAYERS, SHARED, Node, found_in, has_statistics, leaf
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.counters import Counter, holds
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, OF_NODES
from pygfuse.compiler.symbols.symbol import Symbol


class Guards:
    """What a capture read, and whether it still holds; and what it stored in the layer.

    Args:
        num_edges: Number of edges of the call; a tensor of the layer with as many rows has one for each edge.

    Attributes:
        stored: What holds an attribute, the attribute's name, and the symbol or constant that was stored there last.
        normalised: What normalisations gave that have statistics of their own, which move in each call.
        counters: What holds whole numbers that are counted up, and their names there.
        compared: What their comparisons gave (`pygfuse.compiler.symbols.counters.Counter`).
        absent: What held no attribute of a name that was asked for, and the name.
        structures: Modules of which it was asked which modules and parameters they hold, and the names of these.
        held: What stands for edges that a module holds, by what holds them and their name there.
        numbers: The numbers that were read of a call's tensors, by what makes each
            (`pygfuse.compiler.made_edges.remade.Made`).
    """

    def __init__(self, num_edges: int | None = None) -> None:
        self.num_edges = num_edges
        self.stored: dict[tuple[int, str], tuple[Module, str, Any]] = {}
        self.normalised: list[Node] = []
        self.counters: set[tuple[int, str]] = set()
        self.compared: list[tuple] = []
        self.absent: list[tuple[Module, str]] = []
        self.structures: list[tuple[Module, tuple[str, ...]]] = []
        self.attributes: list[tuple[Any, str, Any]] = []
        self.tensors: list[tuple[Any, str, tuple, torch.dtype]] = []
        self.of_edges: list[tuple[Any, str, tuple, torch.dtype]] = []
        self.unhooked: list[Module] = []
        # whose hooks may be gone in the next call, as those of modules that are initialised by the first one
        self.hooked: list[Module] = []
        self.numbers: dict[Any, int | bool] = {}
        self.held: dict[tuple[int, str], Any] = {}
        self._seen: set[tuple[int, str]] = set()
        self._namespaces: dict[int, Namespace] = {}
        self._keys: dict[int, Keys] = {}
        self._watched: dict[int, Watched] = {}

    def namespace(self, found: dict[str, Any]) -> Namespace:
        """The globals of a module, or a dict, as something that is guarded: always the same for the same."""
        return self._namespaces.setdefault(id(found), Namespace(found))

    def keys(self, found: dict[str, Any]) -> Keys:
        """The keys of a dict, as something that is guarded: always the same for the same."""
        return self._keys.setdefault(id(found), Keys(found))

    def settings(self, name: str, found: Any) -> Settings:
        """What stands for settings that are read by a name."""
        return Settings(name, found, self)

    def unwritten(self, name: str, found: list, owner: str = 'the code around it') -> Unwritten:
        """What stands for a list of constants."""
        return Unwritten(name, found, owner)

    def moved_by(self, found: Any) -> Any:
        """Remembers what a normalisation, or a layer, gave, if its statistics move."""
        symbol = next(found_in(Symbol, found), None)
        node = None if symbol is None else symbol.node
        # within a block without gradients it is detached
        while node is not None and node.op in ('detach', *PARTS_OF_LAYERS):
            node = node.args[0]
        if node is not None and has_statistics(node):
            self.normalised.append(node)
        return found

    def add(self, owner: Any, name: str, found: Any) -> None:
        """Remembers that `found` was read."""
        if (id(owner), name) in self._seen:
            return
        self._seen.add((id(owner), name))
        if isinstance(found, Tensor) and self.is_of_edges(found):
            self.of_edges.append((owner, name, found.shape[1:], found.dtype))
        elif isinstance(found, Tensor):
            self.tensors.append((owner, name, found.shape, found.dtype))
        else:
            self.attributes.append((owner, name, tuple(found) if isinstance(found, list) else found))

    def begin(self) -> None:
        """Forgets what an attempt before has left, but for what it read."""
        self.normalised.clear()
        self.compared.clear()
        self.stored.clear()
        self.attributes = [one for one in self.attributes if (id(one[0]), one[1]) not in self.counters]

    @staticmethod
    def are_as_before(absent: Iterable[tuple[Any, str]], structures: Iterable[tuple[Any, tuple[str, ...]]]) -> bool:
        """Whether attributes are still absent, and modules hold no others."""
        if any(hasattr(owner, name) for owner, name in absent):
            return False
        return all(_names_in(owner) == names for owner, names in structures)

    def holds_modules(self, module: Module) -> None:
        """Remembers which modules and parameters a module holds."""
        found = module, _names_in(module)
        # each call looks at all of them
        if found not in self.structures:
            self.structures.append(found)

    def holds_parameters(self, module: Module) -> None:
        """Remembers of a module that runs as it is the shapes of its parameters: what it gives follows from them."""
        for part in module.modules():
            for name, child in part._modules.items():
                self.add(part, name, child)
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    self.check_type(name, parameter)
                self.add(part, name, parameter)

    def check_type(self, name: str, found: Tensor) -> None:
        """Raises a Refused for a tensor of another class, as long as it is of that: one without a shape gets one."""
        if type(found) not in (Tensor, torch.nn.Parameter):
            self.add(found, '__class__', type(found))
            raise Refused(f'{name} is a {type(found).__name__}')

    def watched(self, module: Module) -> Watched:
        """What stands for a module: always the same, as code may ask whether two are one."""
        return self._watched.setdefault(id(module), Watched(module, self))

    def has_seen(self, owner: Any, name: str) -> bool:
        """Whether something was read."""
        return (id(owner), name) in self._seen

    def is_of_edges(self, found: Tensor) -> bool:
        """Whether a tensor of the layer has a row for each edge."""
        return found.dim() > 0 and found.shape[0] == self.num_edges

    def hold(self, num_edges: int | None = None, run: Any = None) -> bool:
        """Whether everything would be read again in a call.

        Args:
            num_edges: Number of edges of the call.
            run: What the call makes, a `pygfuse.compiler.made_edges.remade.Run`, of a module.
        """
        for owner, name, value in self.attributes:
            found = getattr(owner, name, None)
            if found is value:
                continue
            found = tuple(found) if isinstance(found, list) else found
            if type(found) is not type(value) or not isinstance(value, (*NUMBERS, tuple)) or found != value:
                return False
        of_edges = [(owner, name, (num_edges, *shape), dtype) for owner, name, shape, dtype in self.of_edges]
        for owner, name, shape, dtype in (*self.tensors, *of_edges):
            found = getattr(owner, name, None)
            if not isinstance(found, Tensor) or found.shape != shape or found.dtype != dtype:
                return False
        if any(map(is_changed, self.unhooked)) or not all(map(is_changed, self.hooked)):
            return False
        if not all(map(holds, self.compared)) or not self.are_as_before(self.absent, self.structures):
            return False
        return all(run.number(made) == number for made, number in self.numbers.items())


def _names_in(module: Module) -> tuple[str, ...]:
    """The names of the modules and parameters that a module holds."""
    return (*module._modules, *module._parameters)


class Watched:
    """Stands for a module while its methods are captured."""

    def __init__(self, module: Module, guards: Guards) -> None:
        object.__setattr__(self, '_module', module)
        object.__setattr__(self, '_guards', guards)

    @property
    def __class__(self) -> type:
        # `super()` and `isinstance` take it for the module
        return type(object.__getattribute__(self, '_module'))

    def __setattr__(self, name: str, found: Any) -> None:
        module, guards = _parts(self)
        held = any(name in names for names in (module._parameters, module._buffers, module._modules))
        is_property = hasattr(type(inspect.getattr_static(type(module), name, None)), '__set__')
        # not what stands for a number of edges
        is_known = isinstance(found, (Symbol, Counter)) or type(found) in NUMBERS
        if not is_known or held or is_property:
            raise Refused(f'it stores a value in {name}')
        if isinstance(found, Counter) and (found.owner, found.name) != (module, name):
            raise Refused(f'it stores {found.name} in {name}')
        if not isinstance(found, (Symbol, Counter)) and guards.has_seen(module, name):
            # the next call would read it
            if type(found) is int and type(getattr(module, name, None)) is int:
                guards.counters.add((id(module), name))
            raise Refused(f'it reads {name} and stores another value there')
        guards.stored[id(module), name] = module, name, found

    def __delattr__(self, name: str) -> None:
        module, guards = _parts(self)
        if guards.stored.pop((id(module), name), None) is None:
            raise Refused(f'it deletes {name}')

    def __getattr__(self, name: str) -> Any:
        module, guards = _parts(self)
        if (id(module), name) in guards.stored:
            return guards.stored[id(module), name][-1]
        kind = written_class(type(module))
        if is_parametrized(module, name):
            guards.add(module, '__class__', kind)
            # before it is read: a parametrization may draw, or count how often it is
            raise Refused(f'{name} is parametrized')
        on_class = getattr(kind, name, None)
        if name == 'fused_aggr' and isinstance(module, MultiAggregation):
            return None
        if isinstance(on_class, property) or (isinstance(on_class, types.FunctionType) and name not in module.__dict__):
            return self._of_class(kind, name, inspect.getattr_static(kind, name))
        try:
            found = getattr(module, name)
        except AttributeError:
            if (module, name) not in guards.absent:
                guards.absent.append((module, name))
            raise
        return self._seen(name, found)

    def _of_class(self, owner: type, name: str, found: Any) -> Any:
        """What a class holds under a name, as it is read of the layer."""
        _, guards = _parts(self)
        if isinstance(found, property):
            return rebound(found.fget, guards)(self)
        guards.add(owner, name, getattr(owner, name))
        if isinstance(found, staticmethod):
            return rebound(found.__func__, guards)
        if isinstance(found, types.FunctionType):
            return method_of(self, found, guards)
        if is_constant(found):
            return found
        raise Refused(f'it reads {name} of a class, a {type(found).__name__}')

    def _inherited(self, kind: type, name: str) -> Any:
        """What ``super()`` within a class finds."""
        order = type(_parts(self)[0]).__mro__
        for owner in order[order.index(kind) + 1 :]:
            if name in vars(owner):
                return self._of_class(owner, name, vars(owner)[name])
        raise AttributeError(name)

    def _seen(self, name: str, found: Any) -> Any:
        module, guards = _parts(self)
        if (id(module), name) in guards.held:
            return guards.held[id(module), name]
        if isinstance(found, Tensor):
            guards.check_type(name, found)
            guards.add(module, '__class__', type(module))  # another one where a parametrization is registered
            guards.add(module, name, found)
            if guards.is_of_edges(found):
                return Symbol(leaf(name, EDGE, found.shape[1:], found.dtype, (module, name)), NUM_EDGES)
            return Symbol(leaf(name, SHARED, found.shape, found.dtype, (module, name)), None)
        if isinstance(found, Module):
            guards.add(module, name, found)
            return guards.watched(found)
        if (id(module), name) in guards.counters and type(found) is int:
            return Counter(module, name, guards.compared)
        if type(found) is Inspector:
            # it finds arguments by their names
            guards.add(module, name, found)
            return found
        if is_constant(tuple(found) if isinstance(found, list) else found):
            guards.add(module, name, found)
            return Unwritten(name, found) if isinstance(found, list) else found
        if isinstance(found, (list, tuple)) and all(is_constant(one) or is_function(one) for one in found):
            guards.add(module, name, found)
            watched = [watched_value(name, one, guards) for one in found]
            return Unwritten(name, watched) if isinstance(found, list) else tuple(watched)
        if name in ('_modules', '_parameters', '_buffers'):
            if name == '_modules':
                guards.holds_modules(module)
            return {key: None if item is None else self._seen(key, item) for key, item in found.items()}
        if holds_settings(found):
            guards.add(module, name, found)
            return guards.settings(name, found)
        if is_function(found):
            guards.add(module, name, found)
            return watched_value(name, found, guards)
        if isinstance(found, types.MethodType) and isinstance(found.__self__, Module):
            guards.add(module, name, found)
            return method_of(guards.watched(found.__self__), found.__func__, guards)
        if isinstance(module, torch.nn.RNNBase):
            raise Refused(f'{type(module).__name__} has no fused form')
        raise Refused(f'it reads {name} of the layer, a {type(found).__name__}')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, guards = _parts(self)
        if is_layer(module):
            guards.holds_parameters(module)
            return guards.moved_by(layer_call(module, args, kwargs))
        if is_changed(module):
            guards.hooked.append(module)
            raise Refused(f'a hook is registered on a {type(module).__name__}')
        guards.unhooked.append(module)
        if type(module) is PyGSequential:
            guards.add(module, '_children', module._children)
            return sequential_call(self, module, *args, **kwargs)
        call = written_class(type(module)).__call__
        if isinstance(module, Aggregation):
            return aggregation_call(self, *args, **kwargs)
        if type(module) in NORMS and args and isinstance(args[0], Symbol) and args[0].rows in OF_NODES:
            if kwargs:
                raise Refused(f'a {type(module).__name__} by {", ".join(kwargs)}')
            guards.add(module, '__class__', type(module))
            return guards.moved_by(norm_call(module, *args))
        if type(module) is BatchNorm1d:
            guards.add(module, '__class__', BatchNorm1d)  # another one where a parametrization is registered
            return guards.moved_by(batch_norm_call(module, *args, **kwargs))
        if call is not Module.__call__:
            return rebound(call, guards)(self, *args, **kwargs)
        return self.forward(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        module, guards = _parts(self)
        if isinstance(module, ParameterList):
            return iter([self[place] for place in range(len(self))])
        if not isinstance(module, (Sequential, ModuleList)):
            raise Refused(f'it iterates over a {type(module).__name__}')
        guards.holds_modules(module)
        return iter([self._seen(name, part) for name, part in module._modules.items()])

    def __len__(self) -> int:
        module, guards = _parts(self)
        guards.holds_modules(module)
        return len(module)

    def __bool__(self) -> bool:
        # only containers have a length
        module, guards = _parts(self)
        guards.holds_modules(module)
        return bool(module)

    def __getitem__(self, key: Any) -> Any:
        module, _ = _parts(self)
        if isinstance(module, (ModuleDict, ParameterList, ParameterDict)):
            return self._seen(str(key), getattr(module, str(key)) if isinstance(key, int) else module[key])
        if isinstance(module, ModuleList) and isinstance(key, slice):
            return list(self)[key]
        if not isinstance(module, (Sequential, ModuleList)) or not isinstance(key, int):
            raise Refused(f'it reads a part of a {type(module).__name__}')
        return list(self)[key]


def is_function(found: Any) -> bool:
    """Whether something is a function that somebody wrote, or one of a library that is known."""
    return callable(found) and (isinstance(unscripted(found), types.FunctionType) or is_known(found))


def written_class(kind: type) -> type:
    """The class that somebody wrote, of one whose ``forward`` runs what is made of that one's."""
    return kind.plain if getattr(kind, 'is_captured_whole', False) else kind


def is_changed(module: Module) -> bool:
    """Whether a call of a module is more than the forward of its class."""
    return has_hooks(module) or ('forward' in module.__dict__ and type(module) is not PyGSequential)


def _parts(watched: Watched) -> tuple[Module, Guards]:
    return object.__getattribute__(watched, '_module'), object.__getattribute__(watched, '_guards')
