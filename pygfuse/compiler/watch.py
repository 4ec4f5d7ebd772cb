"""A layer as its message function sees it while it is captured: what is read of it is remembered."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from torch_geometric.nn.aggr import Aggregation, MultiAggregation

from pygfuse._lib.hooks import has_hooks
from pygfuse.compiler.ir import SHARED, leaf
from pygfuse.compiler.leaves import FUNCTIONS, METHODS, aggregation_call
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import Symbol

_NUMBERS = (int, float, bool, str, type(None), torch.dtype)


class Guards:
    """What a capture read, and whether it still holds."""

    def __init__(self) -> None:
        self.attributes: list[tuple[Any, str, Any]] = []
        self.tensors: list[tuple[Any, str, tuple, torch.dtype]] = []
        self.unhooked: list[Module] = []
        self._seen: set[tuple[int, str]] = set()

    def add(self, owner: Any, name: str, found: Any) -> None:
        """Remembers that `found` was read."""
        if (id(owner), name) in self._seen:
            return
        self._seen.add((id(owner), name))
        if isinstance(found, Tensor):
            self.tensors.append((owner, name, found.shape, found.dtype))
        else:
            self.attributes.append((owner, name, tuple(found) if isinstance(found, list) else found))

    def hold(self) -> bool:
        """Whether everything would be read again."""
        for owner, name, value in self.attributes:
            found = getattr(owner, name, None)
            if found is value:
                continue
            found = tuple(found) if isinstance(found, list) else found
            if type(found) is not type(value) or not isinstance(value, (*_NUMBERS, tuple)) or found != value:
                return False
        for owner, name, shape, dtype in self.tensors:
            found = getattr(owner, name, None)
            if found is None or found.shape != shape or found.dtype != dtype:
                return False
        return not any(has_hooks(module) for module in self.unhooked)


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
        raise Refused(f'it stores a value in {name}')

    def __getattr__(self, name: str) -> Any:
        module, guards = _parts(self)
        kind = type(module)
        on_class = getattr(kind, name, None)
        if name == 'fused_aggr' and isinstance(module, MultiAggregation):
            return None
        if isinstance(on_class, property):
            return rebound(on_class.fget, guards)(self)
        if isinstance(on_class, types.FunctionType) and name not in module.__dict__:
            guards.add(kind, name, on_class)
            return types.MethodType(rebound(METHODS.get(on_class, on_class), guards), self)
        found = getattr(module, name)
        return self._seen(name, found)

    def _seen(self, name: str, found: Any) -> Any:
        module, guards = _parts(self)
        if isinstance(found, Tensor):
            if type(found) not in (Tensor, torch.nn.Parameter):
                raise Refused(f'{name} is a {type(found).__name__}')
            guards.add(module, name, found)
            return Symbol(leaf(name, SHARED, found.shape, found.dtype, (module, name)), None)
        if isinstance(found, Module):
            guards.add(module, name, found)
            return Watched(found, guards)
        if isinstance(found, (*_NUMBERS, tuple, list, torch.Size)) or callable(found):
            guards.add(module, name, found)
            return list(found) if isinstance(found, list) else found
        if name in ('_modules', '_parameters', '_buffers'):
            return {key: None if item is None else self._seen(key, item) for key, item in found.items()}
        if isinstance(found, dict):
            raise Refused(f'it reads the dict {name} of the layer')
        raise Refused(f'it reads {name} of the layer, a {type(found).__name__}')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, guards = _parts(self)
        if has_hooks(module) or 'forward' in module.__dict__:
            raise Refused(f'a hook is registered on a {type(module).__name__}')
        guards.unhooked.append(module)
        call = type(module).__call__
        if isinstance(module, Aggregation):
            return aggregation_call(self, *args, **kwargs)
        if call is not Module.__call__:
            return rebound(call, guards)(self, *args, **kwargs)
        return self.forward(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        module, _ = _parts(self)
        if not isinstance(module, (Sequential, ModuleList)):
            raise Refused(f'it iterates over a {type(module).__name__}')
        return iter([self._seen(name, part) for name, part in module._modules.items()])

    def __len__(self) -> int:
        return len(_parts(self)[0])

    def __getitem__(self, key: Any) -> Any:
        module, _ = _parts(self)
        if isinstance(module, (ModuleDict, ParameterList, ParameterDict)):
            return self._seen(str(key), getattr(module, str(key)) if isinstance(key, int) else module[key])
        if not isinstance(module, (Sequential, ModuleList)) or not isinstance(key, int):
            raise Refused(f'it reads a part of a {type(module).__name__}')
        return list(self)[key]


def _parts(watched: Watched) -> tuple[Module, Guards]:
    return object.__getattribute__(watched, '_module'), object.__getattribute__(watched, '_guards')


def rebound(function: Callable, guards: Guards) -> Callable:
    """A function that calls the recording forms of PyG's operators, and whose constants are remembered."""
    while not isinstance(function, types.FunctionType):
        wrapped = getattr(function, '__wrapped__', None)
        if wrapped is None:
            raise Refused(f'it calls {getattr(function, "__name__", function)!r}, whose code is not known')
        function = wrapped
    namespace = function.__globals__
    for name in function.__code__.co_names:
        if name in namespace and isinstance(namespace[name], _NUMBERS):
            guards.add(_Namespace(namespace), name, namespace[name])
    changed = {name: FUNCTIONS[found] for name, found in namespace.items() if _is_leaf(found)}
    copied = types.FunctionType(
        *(function.__code__, {**namespace, **changed}, function.__name__, function.__defaults__, _cells(function))
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _cells(function: types.FunctionType) -> tuple | None:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name == '__class__':
            continue
        found = cell.cell_contents
        if isinstance(found, (Tensor, Module)):
            raise Refused(f'it uses {name} from around it')
    return function.__closure__


def _is_leaf(found: Any) -> bool:
    return isinstance(found, types.FunctionType) and found in FUNCTIONS


class _Namespace:
    """A module's globals, whose values are read as attributes."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return self._namespace.get(name)
