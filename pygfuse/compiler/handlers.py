"""How functions of torch on values of edges or nodes are recorded: under one name each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir import EDGE
from pygfuse.compiler.operations import OPERATIONS
from pygfuse.compiler.own_matrices import product
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import HANDLERS, NUM_EDGES, NUM_TARGETS, Place, Symbol, made, recorded


def handler(*names: str) -> Callable[[Callable], Callable]:
    """Registers a handler for functions of torch."""

    def register(function: Callable) -> Callable:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return register


def _elementwise(op: str) -> Callable:
    def record(*args: Any, **attributes: Any) -> Symbol:
        return made(op, *args, **attributes)

    return record


_OTHER_NAMES = {
    'subtract': 'sub', 'multiply': 'mul', 'divide': 'div', 'true_divide': 'div', 'negative': 'neg', 'absolute': 'abs',
    'greater': 'gt', 'less': 'lt', 'greater_equal': 'ge', 'less_equal': 'le', 'not_equal': 'ne', 'clip': 'clamp',
    'log_sigmoid': 'logsigmoid',
}  # fmt: skip
for _op, _operation in list(OPERATIONS.items()):
    if _operation.elementwise and _op not in ('add', 'sub', 'div', 'prelu', 'clamp', 'where', 'logical_not'):
        HANDLERS[_op] = _elementwise(_op)
for _other, _op in _OTHER_NAMES.items():
    HANDLERS[_other] = HANDLERS.get(_op, _elementwise(_op))


@handler('add')
def _add(x: Any, y: Any, *, alpha: float = 1) -> Symbol:
    return made('add', x, y if alpha == 1 else recorded(torch.mul, (y, alpha)))


@handler('sub', 'subtract')
def _sub(x: Any, y: Any, *, alpha: float = 1) -> Symbol:
    return made('sub', x, y if alpha == 1 else recorded(torch.mul, (y, alpha)))


@handler('rsub')
def _rsub(x: Any, y: Any) -> Symbol:
    return made('sub', y, x)


@handler('div', 'true_divide', 'divide')
def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Symbol:
    if rounding_mode is not None:
        raise Refused('a rounded division')
    return made('div', x, y)


@handler('clamp', 'clip')
def _clamp(x: Any, min: Any = None, max: Any = None) -> Symbol:
    return made('clamp', x, min, max)


@handler('clamp_min')
def _clamp_min(x: Any, min: Any) -> Symbol:
    return made('clamp', x, min, None)


@handler('clamp_max')
def _clamp_max(x: Any, max: Any) -> Symbol:
    return made('clamp', x, None, max)


@handler('hardtanh')
def _hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Symbol:
    return made('clamp', x, min_val, max_val)


@handler('where')
def _where(condition: Any, x: Any, y: Any) -> Symbol:
    return made('where', condition, x, y)


@handler('prelu')
def _prelu(x: Symbol, weight: Symbol) -> Symbol:
    if weight.node.width != 1 and x.dim() > 2:
        raise Refused('prelu over the second of several dimensions')
    return made('prelu', x, weight)


@handler('clone', 'contiguous')
def _same(x: Symbol, **_: Any) -> Symbol:
    # an operator of its own, so that a write to the copy is none to the original
    return made('add', x, 0) if x.node.dtype.is_floating_point else x


@handler('float', 'double', 'half', 'to', 'type_as', 'type')
def _convert(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
    wanted = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)]
    wanted += [a.dtype for a in args if isinstance(a, Symbol)]
    if len(wanted) != 1 or wanted[0] != x.dtype:
        raise Refused('a conversion to another type')
    return x


# Views: known by the shape of a row


def _moved(op: str, x: Symbol, function: Callable, *args: Any, **kwargs: Any) -> Symbol:
    """Records a view that leaves the rows where they are, by its effect on the shape."""
    example = _example(x)
    try:
        out = function(example, *args, **kwargs)
    except (RuntimeError, IndexError, TypeError) as error:
        raise Refused(f'{function.__name__}: {error}') from error
    if not out.dim() or out.shape[0] != x.rows:
        raise Refused(f'{function.__name__} moves the dimension of edges')
    return made(op, x, shape=tuple(out.shape[1:]))


def _example(x: Symbol) -> Tensor:
    return torch.empty((x.rows, *x.node.shape), dtype=x.dtype, device='meta')


def _plain(arguments: Any) -> Any:
    """Arguments of a view: sizes as plain numbers, and shapes of other symbols."""
    if isinstance(arguments, (tuple, list)):
        return tuple(_plain(a) for a in arguments)
    if isinstance(arguments, Symbol):
        raise Refused('a view by values')
    return int(arguments) if isinstance(arguments, int) and not isinstance(arguments, bool) else arguments


def _reshaping(function: Callable) -> Callable:
    def record(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
        return _moved('reshape', x, function, *_plain(args), **{name: _plain(size) for name, size in kwargs.items()})

    return record


for _name in ('reshape', 'unsqueeze', 'squeeze', 'flatten', 'unflatten'):
    HANDLERS[_name] = _reshaping(getattr(Tensor, _name))
HANDLERS['view'] = HANDLERS['reshape']


@handler('expand')
def _expand(x: Symbol, *sizes: Any) -> Symbol:
    return _moved('expand', x, Tensor.expand, *_plain(sizes))


@handler('expand_as')
def _expand_as(x: Symbol, other: Symbol) -> Symbol:
    return _moved('expand', x, Tensor.expand, _plain(other.shape))


@handler('view_as', 'reshape_as')
def _view_as(x: Symbol, other: Symbol) -> Symbol:
    return _moved('reshape', x, Tensor.reshape, _plain(other.shape))


@handler('permute')
def _permute(x: Symbol, *dims: Any) -> Symbol:
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    dims = tuple(int(d) % x.dim() for d in dims)
    if dims[0] != 0:
        raise Refused('permute moves the dimension of edges')
    return made('permute', x, dims=dims)


@handler('transpose', 'swapaxes')
def _transpose(x: Symbol, first: int, second: int) -> Symbol:
    order = list(range(x.dim()))
    first, second = first % x.dim(), second % x.dim()
    order[first], order[second] = order[second], order[first]
    return _permute(x, order)


@handler('is_floating_point')
def _is_floating_point(x: Symbol) -> bool:
    return x.is_floating_point()


@handler('t')
def _t(x: Symbol) -> Symbol:
    raise Refused('t moves the dimension of edges')


@handler('repeat')
def _repeat(x: Symbol, *repeats: Any) -> Symbol:
    repeats = repeats[0] if len(repeats) == 1 and not isinstance(repeats[0], int) else repeats
    if len(repeats) != x.dim() or repeats[0] != 1:
        raise Refused('repeat over edges')
    return made('repeat', x, repeats=tuple(repeats[1:]))


@handler('getitem')
def _getitem(x: Symbol, key: Any) -> Symbol:
    if isinstance(key, Place):
        return _index_select(x, 0, key)
    key = key if isinstance(key, tuple) else (key,)
    for place in key:
        if not (place is None or place is Ellipsis or isinstance(place, (int, slice))):
            raise Refused('an index by values')
    if key[0] is Ellipsis:
        filled = x.dim() - sum(place is not None and place is not Ellipsis for place in key)
        key = (*[slice(None)] * filled, *key[1:])
    if not (isinstance(key[0], slice) and key[0] == slice(None)):
        raise Refused('an index over edges')
    return made('index', x, places=tuple(key[1:])) if len(key) > 1 else x


@handler('narrow')
def _narrow(x: Symbol, dim: int, start: int, length: int) -> Symbol:
    return _between(x, dim, start, start + length)


@handler('select')
def _select(x: Symbol, dim: int, index: int) -> Symbol:
    dim = _inner(x, dim)
    return made('index', x, places=(*[slice(None)] * (dim - 1), index))


def _between(x: Symbol, dim: int, start: int, end: int) -> Symbol:
    dim = _inner(x, dim)
    return made('index', x, places=(*[slice(None)] * (dim - 1), slice(start, end)))


@handler('split')
def _split(x: Symbol, sizes: Any, dim: int = 0) -> tuple[Symbol, ...]:
    dim = _inner(x, dim)
    total = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return tuple(_between(x, dim, end - size, end) for end, size in zip(ends, sizes, strict=True))


@handler('chunk')
def _chunk(x: Symbol, chunks: int, dim: int = 0) -> tuple[Symbol, ...]:
    dim = _inner(x, dim)
    return _split(x, -(-x.shape[dim] // chunks), dim)


@handler('unbind')
def _unbind(x: Symbol, dim: int = 0) -> tuple[Symbol, ...]:
    return tuple(_select(x, dim, k) for k in range(x.shape[_inner(x, dim)]))


@handler('index_select')
def _index_select(x: Symbol, dim: int, index: Any) -> Symbol:
    of_targets = x.node.residency == 'target' and x.rows == NUM_TARGETS
    if isinstance(index, Place) and index.is_target and of_targets and dim in (0, -x.dim()):
        return Symbol(x.node, NUM_EDGES)
    raise Refused('an index by values')


# Reductions within a row


def _inner(x: Symbol, dim: int) -> int:
    """A dimension that is not the one of rows."""
    if not isinstance(dim, int) or not -x.dim() <= dim < x.dim() or dim % x.dim() == 0:
        raise Refused('an operator over the dimension of edges')
    return dim % x.dim()


def _inner_dims(x: Symbol, dim: Any) -> tuple[int, ...]:
    if dim is None:
        raise Refused('a sum over all edges')
    return tuple(sorted(_inner(x, d) for d in ((dim,) if isinstance(dim, int) else dim)))


@handler('sum')
def _sum(x: Symbol, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbol:
    return made('sum', x, dims=_inner_dims(x, dim), keepdim=keepdim)


@handler('mean')
def _mean(x: Symbol, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbol:
    dims = _inner_dims(x, dim)
    count = 1
    for d in dims:
        count *= x.shape[d]
    return made('div', made('sum', x, dims=dims, keepdim=keepdim), count)


@handler('softmax', '_softmax')
def _softmax_of_row(x: Symbol, dim: int = -1, *_: Any, **__: Any) -> Symbol:
    return made('softmax_of_row', x, dim=_inner(x, dim))


@handler('log_softmax')
def _log_softmax_of_row(x: Symbol, dim: int = -1, *_: Any, **__: Any) -> Symbol:
    return made('log_softmax_of_row', x, dim=_inner(x, dim))


@handler('norm', 'vector_norm', 'linalg_vector_norm')
def _norm(x: Symbol, p: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Symbol:
    return made('norm', x, p=p, dim=_inner_dims(x, dim), keepdim=keepdim)


@handler('normalize')
def _normalize(x: Symbol, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Symbol:
    return made('normalize', x, p=p, dim=_inner(x, dim), eps=eps)


@handler('layer_norm')
def _layer_norm(x: Symbol, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Symbol:
    return made('layer_norm', x, tuple(normalized_shape), weight, bias, eps)


@handler('amax')
def _amax(x: Symbol, dim: Any = None, keepdim: bool = False) -> Symbol:
    return made('amax', x, dim=_inner_dims(x, dim), keepdim=keepdim)


@handler('amin')
def _amin(x: Symbol, dim: Any = None, keepdim: bool = False) -> Symbol:
    return made('amin', x, dim=_inner_dims(x, dim), keepdim=keepdim)


# Maps


@handler('linear')
def _linear(x: Symbol, weight: Any, bias: Any = None) -> Symbol:
    _refuse_rows(weight, bias)
    out = made('linear', x, weight)
    return out if bias is None else made('add', out, bias)


def _refuse_rows(*weights: Any) -> None:
    if any(isinstance(weight, Symbol) and weight.rows is not None for weight in weights):
        raise Refused('a linear map of each edge of its own')


@handler('matmul', 'mm', 'bmm')
def _matmul(x: Any, weight: Any) -> Symbol:
    if isinstance(x, Symbol) and isinstance(weight, Symbol) and weight.rows is not None:
        return product(x, weight)
    _refuse_rows(weight)
    if not isinstance(weight, Symbol) or weight.dim() not in (1, 2):
        raise Refused('a product of matrices of each edge')
    return made('matmul', x, weight)


@handler('einsum')
def _einsum(equation: str, *tensors: Any) -> Symbol:
    tensors = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Symbol) else tensors
    terms, _, result = equation.replace(' ', '').partition('->')
    terms = terms.split(',')
    of_rows = {t[0] for t, x in zip(terms, tensors, strict=True) if x.rows is not None}
    shared = ''.join(t for t, x in zip(terms, tensors, strict=True) if x.rows is None)
    repeated = any(t[1:].count(t[0]) for t in terms)
    if '.' in equation or len(of_rows) != 1 or result[:1] not in of_rows or result[:1] in shared or repeated:
        raise Refused('einsum over the dimension of edges')
    return made('einsum', *tensors, equation=equation)


@handler('cat', 'concat', 'concatenate')
def _cat(parts: Any, dim: int = 0) -> Symbol:
    return made('cat', tuple(_of_rows(parts)), dim=_inner(parts[0], dim))


@handler('stack')
def _stack(parts: Any, dim: int = 0) -> Symbol:
    first = _of_rows(parts)[0]
    if not isinstance(dim, int) or dim % (first.dim() + 1) == 0:
        raise Refused('stack before the dimension of edges')
    return made('stack', tuple(parts), dim=dim % (first.dim() + 1))


def _of_rows(parts: Any) -> list[Symbol]:
    if any(not isinstance(part, Symbol) or part.rows is None for part in parts):
        raise Refused('a concatenation of values of edges and of parameters')
    return list(parts)


@handler('dropout', 'feature_dropout')
def _dropout(x: Symbol, p: float = 0.5, training: bool = True) -> Symbol:
    if not training or p == 0.0:
        return x
    if x.rows is None or (x.node.residency != EDGE and x.rows != NUM_EDGES):
        raise Refused('dropout of something that is no value of edges')
    return made('dropout', x, p=float(p))
