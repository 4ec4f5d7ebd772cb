"""What the code of a message reads from around it: globals, closures and functions, guarded or refused."""

from __future__ import annotations

import builtins
import collections
import dis
import enum
import inspect
import sys
import types
from collections.abc import Callable, Container, Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from pygfuse.compiler.capture.caught_errors import CATCHES, lines_that_catch, without_caught_errors
from pygfuse.compiler.capture.names_in_code import NamesRead, codes_in, is_called
from pygfuse.compiler.capture.namespaces import holds_settings
from pygfuse.compiler.capture.numbers import BUILTINS, LIBRARIES, OfNumbers, is_of_numbers, without_rows
from pygfuse.compiler.functions.leaves import CLASSES, FUNCTIONS, METHODS, int_of, is_instance, len_of, type_of
from pygfuse.compiler.functions.named_axes import form_by_name, method_by_name
from pygfuse.compiler.refusal import Refused

NUMBERS = (int, float, bool, str, type(None), torch.device, torch.dtype, np.float64, np.float32, np.int64, np.bool_)
# what their functions compute depends on their arguments alone, but for the names below
_KNOWN = (
    'abc', 'builtins', 'collections', 'functools', 'itertools', 'math', 'numpy', 'operator', 'torch', 'torch_geometric',
    'torch_scatter', 'torch_sparse', 'typing', 'typing_extensions', 'warnings',
)  # fmt: skip
# those whose functions have recording forms
_RECORDED = ('torch', 'torch_geometric', 'torch_scatter', 'torch_sparse')
_PASSING = {
    'breakpoint', 'compile', 'dir', 'environ', 'eval', 'exec', 'get_num_threads', 'globals', 'initial_seed', 'input',
    'is_autocast_enabled', 'is_grad_enabled', 'is_inference_mode_enabled', 'locals', 'manual_seed', 'open', 'print',
    'random', 'set_default_dtype', 'set_num_threads', 'type', 'vars', '__class__', '__dict__', '__import__',
}  # fmt: skip
# of these, names of builtins: attributes of that name, as a device's type, are others
_BUILTINS = {'breakpoint', 'dir', 'globals', 'input', 'locals', 'open', 'print', 'type', 'vars'}

# flags of code that goes on later
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# what loads a value that may be a tensor: not None, a number, or a class by its name
_OF_CODE = 'LOAD_FAST', 'LOAD_DEREF', 'BINARY_SUBSCR', 'BINARY_OP'

# where the classes are that enumerations come from, and the code that these write into each
_OF_ENUMS = 'builtins', 'enum'

# what classes of named tuples have of those who write them
_UNREAD = (
    '__annotate__', '__annotate_func__', '__annotations__', '__annotations_cache__', '__conditional_annotations__',
    '__firstlineno__', '__orig_bases__', '__static_attributes__',
)  # fmt: skip


def is_constant(found: Any) -> bool:
    """Whether a value can be compared with what it was: a number, a text, a type of numbers, or a tuple of such."""
    if isinstance(found, tuple):
        return all(is_constant(item) for item in found)
    return type(found) in NUMBERS or isinstance(found, torch.dtype) or _is_plain_enum(type(found))


def watched_value(name: str, found: Any, guards: Any) -> Any:
    """What stands for a value that a function reads: itself, or of a function its form that is watched.

    Raises:
        Refused: If the value may become another without notice.
    """
    found = unscripted(found)
    if isinstance(found, types.FunctionType):
        return _watched_function(found, guards)
    if isinstance(found, types.BuiltinFunctionType) and found in FUNCTIONS:
        return FUNCTIONS[found]
    if isinstance(found, type) and found in CLASSES:
        return CLASSES[found]
    if isinstance(found, types.ModuleType) and _root(found.__name__) in _RECORDED:
        return _Library(found, guards)
    if isinstance(found, types.ModuleType) and found.__name__ in LIBRARIES:
        return OfNumbers(found)
    if is_of_numbers(found):
        return without_rows(found)
    if is_constant(found) or is_known(found):
        return found
    if isinstance(found, types.ModuleType):
        return _File(found, guards)
    if holds_settings(found):
        return guards.settings(name, found)
    if isinstance(found, list) and is_constant(tuple(found)):
        return guards.unwritten(name, found)
    raise Refused(f'it reads {name} from around it')


def unscripted(found: Any) -> Any:
    """The function of Python that `torch.jit.script` compiled, or anything else as it is."""
    if not isinstance(found, torch.jit.ScriptFunction):
        return found
    # what torch.compile traces in its place; it would be told that it is not compiled
    function = getattr(found, '_torchdynamo_inline', None)
    is_plain = isinstance(function, types.FunctionType) and 'is_scripting' not in function.__code__.co_names
    return function if is_plain else found


class _Library:
    """A module of a library, whose functions are read of it as if by their names."""

    def __init__(self, module: types.ModuleType, guards: Any) -> None:
        self._module, self._guards = module, guards

    def __getattr__(self, name: str) -> Any:
        return watched_value(name, getattr(self._module, name), self._guards)


class _File:
    """An imported module that somebody wrote, or a class that is read by its attributes alone: these are remembered."""

    def __init__(self, module: types.ModuleType, guards: Any) -> None:
        self._module, self._guards = module, guards

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or not hasattr(self._module, name):
            raise Refused(f'it reads {name} of {self._module.__name__}')
        found = getattr(self._module, name)
        seen = watched_value(name, found, self._guards)
        self._guards.add(self._module, name, found)
        return seen


def is_known(found: Any) -> bool:
    """Whether a module, a class or a function that is not written in Python belongs to a library that is known."""
    if isinstance(found, types.ModuleType):
        return _root(found.__name__) in _KNOWN and 'random' not in found.__name__
    if isinstance(found, type):
        return (
            _is_of_names(found)
            or _is_plain_enum(found)
            or issubclass(found, BaseException)
            or all(_root(kind.__module__) in _KNOWN for kind in found.__mro__)
        )
    if isinstance(found, types.BuiltinFunctionType):
        owner = found.__self__
        # those of a module may tell the time
        is_of_module = isinstance(owner, types.ModuleType)
        return _root(owner.__name__).lstrip('_') in _KNOWN if is_of_module else isinstance(owner, (type, type(None)))
    return _root(type(found).__module__) == 'typing'


def _is_plain_enum(kind: type) -> bool:
    """Whether a class is an enumeration of constants, and has no code of its own."""
    if not issubclass(kind, enum.Enum) or not all(is_constant(member.value) for member in kind):
        return False
    held = (found for owner in kind.__mro__ if owner.__module__ not in _OF_ENUMS for found in vars(owner).values())
    own = (getattr(found, 'fget', None) or getattr(found, '__func__', found) for found in held)
    return all(found.__module__ in _OF_ENUMS for found in own if isinstance(found, types.FunctionType))


def _is_of_names(kind: type) -> bool:
    """Whether a class is one of named tuples, and has nothing but their names: no code that might read something."""
    if kind.__bases__ != (tuple,) or not hasattr(kind, '_fields'):
        return False
    plain = vars(collections.namedtuple('Plain', ()))
    return all(name in plain or name in kind._fields or name in _UNREAD for name in vars(kind))


def _root(name: str | None) -> str:
    return (name or '').partition('.')[0]


def _is_library(function: types.FunctionType) -> bool:
    return _root(function.__globals__.get('__name__')) in _KNOWN


def _is_ours(function: types.FunctionType) -> bool:
    """Whether it is a recording form."""
    return function.__globals__.get('__name__', '').startswith('pygfuse.compiler.')


def _watched_function(function: types.FunctionType, guards: Any) -> Callable:
    form = FUNCTIONS.get(function) or form_by_name(function)
    if form is not None:
        return form
    if _is_library(function) and _root(function.__globals__['__name__']) != 'torch_geometric':
        return function

    # what it reads is looked at when it is called
    def called(*args: Any, **kwargs: Any) -> Any:
        return rebound(function, guards)(*args, **kwargs)

    return called


def rebound(function: Callable, guards: Any) -> Callable:
    """A function that calls the recording forms of PyG's operators, and all else that it reads is remembered.

    Raises:
        Refused: If it reads or writes what cannot be guarded.
    """
    while not isinstance(function, types.FunctionType):
        wrapped = getattr(function, '__wrapped__', None)
        if wrapped is None:
            raise Refused(f'it calls {getattr(function, "__name__", function)!r}, whose code is not known')
        function = wrapped
    if _is_ours(function):
        return function
    namespace, code = function.__globals__, function.__code__
    if _is_library(function):
        changed = {name: _of_library(namespace[name], guards) for name in _names_of_library(function)}
    else:
        changed = _globals_of(function, guards)
        _guard_defaults(function, guards)
    stand_ins = {name: made for name, made in _builtins_called(code).items() if name not in namespace}
    changed |= {'super': _super, 'isinstance': is_instance, **stand_ins}
    copied = types.FunctionType(
        *(code, {**namespace, **changed}, function.__name__, function.__defaults__, _cells(function, guards))
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    caught = {} if _is_library(function) else {inner: lines_that_catch(inner) for inner in codes_in(code)}
    caught = {inner: lines for inner, lines in caught.items() if lines}
    if any(inner.co_flags & _PAUSES for inner in caught):
        raise Refused(CATCHES)
    return without_caught_errors(copied, caught) if caught else copied


def method_of(owner: Any, function: types.FunctionType, guards: Any) -> types.MethodType:
    """A function of a class, as a method of what stands for one of its objects."""
    form = METHODS.get(function) or method_by_name(function) or function
    return types.MethodType(rebound(form, guards), owner)


def _names_of_library(function: types.FunctionType) -> Iterator[str]:
    return (name for name in function.__code__.co_names if name in function.__globals__)


def _of_library(found: Any, guards: Any) -> Any:
    return _watched_function(found, guards) if isinstance(found, types.FunctionType) else found


def _globals_of(function: types.FunctionType, guards: Any) -> dict[str, Any]:
    """What stands for the globals that a user's function reads."""
    namespace = function.__globals__
    owner = guards.namespace(namespace)
    changed = {}
    read = NamesRead.by(function.__code__)
    for name in _globals_read(function.__code__, namespace):
        if name in namespace:
            changed[name] = _around(name, namespace[name], read, guards)
            guards.add(owner, name, namespace[name])
        elif not hasattr(builtins, name):
            # no error where it is in a branch that is not taken
            guards.add(owner, name, None)
    return changed


def _globals_read(code: types.CodeType, namespace: Container[str]) -> set[str]:
    """The global names that code and the functions within it read.

    Args:
        code: The code.
        namespace: The names of its globals, which are no builtins.

    Raises:
        Refused: If it writes to what is around it, or reads what changes from call to call.
    """
    found, before = set(), ''
    instructions = list(dis.get_instructions(code))
    for place, instruction in enumerate(instructions):
        name, said = instruction.opname, instruction.argval
        if name == 'IS_OP' and before.startswith(_OF_CODE):
            # of what stands for arguments no two are the same
            raise Refused('it asks whether two values are the same one (is)')
        before = name
        if name in ('STORE_GLOBAL', 'DELETE_GLOBAL') or (name == 'STORE_DEREF' and said in code.co_freevars):
            raise Refused(f'it writes to {said} around it')
        if name == 'IMPORT_NAME' and (_root(said) not in _KNOWN or _root(said) in LIBRARIES):
            raise Refused(f'it imports {said}')
        if name in ('LOAD_GLOBAL', 'LOAD_NAME'):
            found.add(said)
        if said in _CALLED and said not in namespace and is_called(instructions, place):
            # no error where it is in a branch that is not taken
            continue
        is_read = name.startswith(('LOAD_GLOBAL', 'LOAD_NAME', 'LOAD_ATTR', 'LOAD_METHOD', 'IMPORT_'))
        is_attribute = name.startswith(('LOAD_ATTR', 'LOAD_METHOD')) and said in _BUILTINS
        if is_read and not is_attribute and isinstance(said, str) and said.rpartition('.')[2] in _PASSING:
            raise Refused(f'it reads {said}, which cannot be guarded')
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _globals_read(constant, namespace)
    return found


def _builtins_called(code: types.CodeType) -> dict[str, Callable]:
    """What stands for builtins that code, and the functions within it, call and read for nothing else."""
    others = set()
    for inner in codes_in(code):
        instructions = list(dis.get_instructions(inner))
        read = [place for place, one in enumerate(instructions) if one.argval in _CALLED]
        others |= {instructions[place].argval for place in read if not is_called(instructions, place)}
    return {name: stand_in for name, stand_in in _CALLED.items() if name not in others}


def _refuse_print(*_: Any, **__: Any) -> NoReturn:
    raise Refused('it prints')


# builtins that capture has forms of its own for
_CALLED = {'type': type_of, 'int': int_of, 'len': len_of, 'print': _refuse_print}
_CALLED |= {function.__name__: without_rows(function) for function in BUILTINS}


def _around(name: str, found: Any, read: NamesRead, guards: Any) -> Any:
    """What stands for something around a function."""
    if isinstance(found, type) and name in read.for_super:
        return found
    # a class of a class may give other attributes
    if type(found) is type and name in read.for_attributes and not is_known(found):
        return _File(found, guards)
    return watched_value(name, found, guards)


def _guard_defaults(function: types.FunctionType, guards: Any) -> None:
    guards.add(function, '__code__', function.__code__)
    for found in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if not is_constant(found):
            raise Refused(f'a default of {function.__name__} is a {type(found).__name__}')
    if function.__defaults__ is not None:
        guards.add(function, '__defaults__', function.__defaults__)


def _cells(function: types.FunctionType, guards: Any) -> tuple | None:
    """The cells of a closure: numbers guarded, functions watched."""
    cells, read = [], NamesRead.by(function.__code__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found = cell.cell_contents
        except ValueError:
            raise Refused(f'it reads {name}, which is not there') from None
        if name == '__class__' or _is_library(function):
            if isinstance(found, (Tensor, Module)):
                raise Refused(f'it uses {name} from around it')
            cells.append(types.CellType(_of_library(found, guards)))
            continue
        cells.append(types.CellType(_around(name, found, read, guards)))
        guards.add(cell, 'cell_contents', found)
    return tuple(cells) or None


class _Inherited:
    """``super()`` of a layer that is watched."""

    def __init__(self, kind: type, watched: Any) -> None:
        self._kind = kind
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self._watched, '_inherited')(self._kind, name)


def _super(*given: Any) -> Any:
    """``super`` of watched layers, whose methods are watched in turn."""
    if not given:
        # what the form without arguments reads itself
        frame = sys._getframe(1)
        given = frame.f_locals['__class__'], frame.f_locals[frame.f_code.co_varnames[0]]
    return _Inherited(*given)
