"""Which of PyTorch's functions compute each row of their result from the same rows of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ELEMENTWISE = (
    'abs', 'add', 'addcdiv', 'addcmul', 'alias', 'arctan', 'atan', 'bool', 'celu', 'ceil', 'clamp', 'clamp_max',
    'clamp_min', 'clip', 'clone', 'contiguous', 'cos', 'cosh', 'detach', 'div', 'divide', 'double', 'elu', 'eq', 'erf',
    'erfc', 'exp', 'expm1', 'float', 'floor', 'ge', 'gelu', 'gt', 'hardshrink', 'hardsigmoid', 'hardswish', 'hardtanh',
    'isfinite', 'isinf', 'isnan', 'le', 'leaky_relu', 'lerp', 'log', 'log10', 'log1p', 'log2', 'logical_and',
    'logical_not', 'logical_or', 'logit', 'logsigmoid', 'long', 'lt', 'maximum', 'minimum', 'mish', 'mul', 'multiply',
    'nan_to_num', 'ne', 'neg', 'negative', 'pow', 'reciprocal', 'relu', 'relu6', 'round', 'rsqrt', 'rsub', 'selu',
    'sigmoid', 'sign', 'silu', 'sin', 'sinh', 'softplus', 'softshrink', 'softsign', 'sqrt', 'square', 'sub', 'subtract',
    'tan', 'tanh', 'tanhshrink', 'threshold', 'true_divide', 'where',
    '__add__', '__radd__', '__sub__', '__rsub__', '__mul__', '__rmul__', '__truediv__', '__rtruediv__', '__div__',
    '__rdiv__', '__neg__', '__pow__', '__rpow__', '__abs__', '__eq__', '__ne__', '__lt__', '__le__', '__gt__', '__ge__',
)  # fmt: skip
_IN_PLACE_OPERATORS = {
    '__iadd__': '__add__',
    '__isub__': '__sub__',
    '__imul__': '__mul__',
    '__itruediv__': '__truediv__',
    '__ipow__': '__pow__',
}
_WRITERS = {
    '__setitem__', '__set__', '__delete__', '__ifloordiv__', '__imod__', '__iand__', '__ior__', '__ixor__',
    '__ilshift__', '__irshift__', *_IN_PLACE_OPERATORS,
}  # fmt: skip

# functions along a dimension: the place of `dim` among their arguments, and its default (None: all dimensions)
_ALONG = {
    'all': (1, None), 'amax': (1, None), 'amin': (1, None), 'any': (1, None), 'argmax': (1, None), 'argmin': (1, None),
    'cat': (1, 0), 'chunk': (2, 0), 'concat': (1, 0), 'cummax': (1, None), 'cumsum': (1, None), 'flatten': (1, 0),
    'glu': (1, -1), 'index_select': (1, None), 'log_softmax': (1, None), 'logsumexp': (1, None), 'max': (1, None),
    'mean': (1, None), 'min': (1, None), 'narrow': (1, None), 'normalize': (2, 1), 'prod': (1, None),
    'select': (1, None), 'softmax': (1, None), 'softmin': (1, None), 'split': (2, 0), 'squeeze': (1, None),
    'stack': (1, 0), 'std': (1, None), 'sum': (1, None), 'unbind': (1, 0), 'unsqueeze': (1, None), 'var': (1, None),
}  # fmt: skip
_NAMES_OF_DIM = ('dim', 'axis', 'start_dim')
# results that share memory with an argument
_VIEWS = {
    'alias', 'chunk', 'contiguous', 'detach', 'double', 'flatten', 'float', 'long', 'narrow', 'select', 'split',
    'squeeze', 'unbind', 'unsqueeze',
}  # fmt: skip


def _functions(name: str) -> set[Callable]:
    # PyG puts functions of its own in place of some of torch's, which call the true ones
    places = (torch, torch._C._VariableFunctions, F, Tensor)
    return {getattr(place, name) for place in places if hasattr(place, name)}


ELEMENTWISE = {function for name in _ELEMENTWISE for function in _functions(name)}
ALONG = {function: place for name, place in _ALONG.items() for function in _functions(name)}
VIEWS = {function for name in _VIEWS for function in _functions(name)}
SELECTIONS = {Tensor.__getitem__} | _functions('index_select')
JOINS = _functions('cat') | _functions('concat') | _functions('stack')
DETACHING = _functions('detach')
_ADDS_A_DIMENSION = _functions('stack') | _functions('unsqueeze')
LINEAR = {F.linear}
PRODUCTS = {function for name in ('matmul', 'mm', '__matmul__') for function in _functions(name)}
RESHAPES = {Tensor.view, Tensor.reshape, torch.reshape}
LAYER_NORMS = {F.layer_norm, torch.layer_norm}
DROPOUTS = {F.dropout}
# functions in place -> the same not in place
IN_PLACE: dict[Callable, Callable] = (
    {
        getattr(Tensor, f'{name}_'): getattr(Tensor, name)
        for name in _ELEMENTWISE
        if hasattr(Tensor, f'{name}_') and hasattr(Tensor, name)
    }
    | {getattr(Tensor, name): getattr(Tensor, other) for name, other in _IN_PLACE_OPERATORS.items()}
    | {
        getattr(place, f'{name}_'): getattr(F, name)
        for name in ('relu', 'elu', 'selu', 'celu', 'leaky_relu', 'hardtanh', 'threshold')
        for place in (F, torch)
        if hasattr(place, f'{name}_')
    }
)


def without_in_place(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], bool]:
    """The arguments with ``inplace=False``, and whether they said otherwise.

    Args:
        function: One of PyTorch's.
        args, kwargs: What it was called with.
    """
    if not inspect.isfunction(function):
        return args, kwargs, False
    # what PyTorch wraps may be a builtin without a signature
    names = inspect.signature(function, follow_wrapped=False).parameters
    if 'inplace' not in names:
        return args, kwargs, False
    place = [*names].index('inplace')
    if len(args) > place:
        return (*args[:place], False, *args[place + 1 :]), kwargs, bool(args[place])
    return args, {**kwargs, 'inplace': False}, bool(kwargs.get('inplace', False))


def writes_to_first(function: Callable, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a function writes to its first argument."""
    name = getattr(function, '__name__', '')
    if name in _WRITERS or (name.endswith('_') and not name.endswith('__')):
        return True
    return without_in_place(function, args, kwargs)[2]


def is_along_other_dimensions(function: Callable, args: tuple, kwargs: dict[str, Any], result_dims: int) -> bool:
    """Whether a function of `ALONG` leaves the first dimension as it is."""
    place, default = ALONG[function]
    dim = args[place] if len(args) > place else next((kwargs[n] for n in _NAMES_OF_DIM if n in kwargs), default)
    first = args[0][0] if isinstance(args[0], (tuple, list)) else args[0]
    dims = result_dims if function in _ADDS_A_DIMENSION else first.dim()
    dim = (dim,) if isinstance(dim, int) and not isinstance(dim, bool) else dim
    if not isinstance(dim, (tuple, list)) or not all(isinstance(one, int) for one in dim) or not dim:
        return False
    return all(one % dims for one in dim)
