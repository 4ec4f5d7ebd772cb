"""How functions of torch on values of edges or nodes are recorded: under one name each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from pygfuse.compiler.functions.filled import filled
from pygfuse.compiler.functions.of_nodes import is_over_edges, number_of_rows, sum_over_edges
from pygfuse.compiler.functions.own_matrices import product, product_of_small
from pygfuse.compiler.functions.piles import Pile
from pygfuse.compiler.functions.typed_maps import typed_product
from pygfuse.compiler.functions.views import inner_dim
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, OF_NODES
from pygfuse.compiler.symbols.places import DEVICE
from pygfuse.compiler.symbols.symbol import HANDLERS, Symbol, handler, made, recorded


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
    return made('hardtanh', x, min_val, max_val)


@handler('softplus')
def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Symbol:
    return made('softplus', x, beta=beta, threshold=threshold)


def _chosen_by(condition: Any, *values: Any) -> Any:
    """A condition on truth values or integers as a comparison of floating numbers, as programs have it."""
    floating = [x.dtype for x in values if isinstance(x, Symbol) and x.dtype.is_floating_point]
    if not isinstance(condition, Symbol) or condition.rows is None or condition.dtype is not torch.bool or not floating:
        return condition
    compared = [node for node in condition.node.parents() if node.dtype.is_floating_point]
    return condition if compared else made('gt', made('indicator', condition, dtype=floating[0]), 0.5)


def _of_truth(op: str) -> Callable:
    def record(*values: Any) -> Symbol:
        if any(not isinstance(x, Symbol) or x.dtype is not torch.bool for x in values):
            raise Refused(f'{op} of something else than truth values')
        return made(op, *values)

    return record


for _bits, _op in (('and', 'logical_and'), ('or', 'logical_or'), ('not', 'logical_not')):
    HANDLERS[f'bitwise_{_bits}'] = HANDLERS[_op] = _of_truth(_op)


@handler('where')
def _where(condition: Any, x: Any, y: Any) -> Symbol:
    return made('where', _chosen_by(condition, x, y), x, y)


@handler('masked_fill')
def _masked_fill(x: Symbol, mask: Any, value: Any) -> Symbol:
    return made('masked_fill', x, _chosen_by(mask, x), value)


@handler('mul', 'multiply')
def _mul(x: Any, y: Any) -> Symbol:
    return made('mul', _as_number(x, y), _as_number(y, x))


def _as_number(x: Any, beside: Any) -> Any:
    """A truth value that floating numbers are multiplied with as such a number."""
    is_truth = isinstance(x, Symbol) and x.dtype is torch.bool and x.rows is not None
    is_beside = isinstance(beside, Symbol) and beside.dtype.is_floating_point
    return made('indicator', x, dtype=beside.dtype) if is_truth and is_beside else x


@handler('zeros_like')
def _zeros_like(x: Symbol, *, dtype: Any = None) -> Symbol:
    _check_dtype(x, dtype)
    return _holding(x, 0.0)


@handler('full_like')
def _full_like(x: Symbol, fill_value: Any, *, dtype: Any = None) -> Symbol:
    _check_dtype(x, dtype)
    return _holding(x, float(fill_value))


@handler('ones_like')
def _ones_like(x: Symbol, *, dtype: Any = None) -> Symbol:
    _check_dtype(x, dtype)
    return _holding(x, 1.0)


def _holding(x: Symbol, number: float) -> Symbol:
    """A number for each that x has, whatever it is."""
    if not x.dtype.is_floating_point:
        raise Refused('numbers that are no floating ones')
    if x.rows in OF_NODES:
        return filled(x.shape, number, x.dtype)
    equal = made('indicator', made('eq', x, x), dtype=x.dtype)
    zeros = made('sub', equal, equal)
    found = made('add', zeros, number) if number else zeros
    found.constant = number
    return found


@handler('prelu')
def _prelu(x: Symbol, weight: Symbol) -> Symbol:
    if weight.node.width != 1 and x.dim() > 2:
        raise Refused('prelu over the second of several dimensions')
    return made('prelu', x, weight)


@handler('to', 'type_as', 'type')
def _convert(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
    if kwargs.get('copy') or any(argument is True for argument in args):
        raise Refused('a copy of another type perhaps')
    places = [a for a in (*args, *kwargs.values()) if isinstance(a, (torch.device, str))]
    if len(places) == len(args) + len(kwargs) == 1 and torch.device(places[0]) == DEVICE.get():
        return x
    wanted = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)]
    wanted += [a.dtype for a in args if isinstance(a, Symbol)]
    if len(wanted) == 1 and not x.dtype.is_floating_point and wanted[0].is_floating_point:
        return made('indicator' if x.dtype == torch.bool else 'converted', x, dtype=wanted[0])
    if len(wanted) != 1 or wanted[0] != x.dtype:
        raise Refused('a conversion to another type')
    return x


@handler('float')
def _float(x: Symbol) -> Symbol:
    return _convert(x, torch.float32)


@handler('double')
def _double(x: Symbol) -> Symbol:
    return _convert(x, torch.float64)


@handler('is_floating_point')
def _is_floating_point(x: Symbol) -> bool:
    return x.is_floating_point()


# Reductions within a row


def _inner_dims(x: Symbol, dim: Any) -> tuple[int, ...]:
    if dim is None:
        raise Refused('a sum over all edges')
    return tuple(sorted(inner_dim(x, d) for d in ((dim,) if isinstance(dim, int) else dim)))


def _check_dtype(x: Symbol, dtype: Any) -> None:
    if dtype is not None and dtype != x.dtype:
        raise Refused('a conversion to another type')


@handler('sum')
def _sum(x: Symbol, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbol:
    _check_dtype(x, dtype)
    if x.rows == NUM_EDGES and is_over_edges(dim, x.dim()):
        return sum_over_edges(x, dim, keepdim)
    return made('sum', x, dims=_inner_dims(x, dim), keepdim=keepdim)


@handler('mean')
def _mean(x: Symbol, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbol:
    _check_dtype(x, dtype)
    if x.rows == NUM_EDGES and is_over_edges(dim, x.dim()):
        total = sum_over_edges(x, dim, keepdim)
        return made('div', total, made('mul', number_of_rows(NUM_EDGES, x.dtype), x.node.width / total.node.width))
    dims = _inner_dims(x, dim)
    count = 1
    for d in dims:
        count *= x.shape[d]
    return made('div', made('sum', x, dims=dims, keepdim=keepdim), count)


def _softmax_in_row(op: str) -> Callable:
    def record(x: Symbol, dim: int = -1, *given: Any, dtype: Any = None, **_: Any) -> Symbol:
        # methods take the type by position, functions a number of no effect
        for found in (dtype, *(item for item in given if isinstance(item, torch.dtype))):
            _check_dtype(x, found)
        return made(op, x, dim=inner_dim(x, dim))

    return record


HANDLERS['softmax'] = HANDLERS['_softmax'] = _softmax_in_row('softmax_of_row')
HANDLERS['log_softmax'] = _softmax_in_row('log_softmax_of_row')


@handler('norm', 'vector_norm', 'linalg_vector_norm')
def _norm(x: Symbol, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbol:
    _check_dtype(x, dtype)
    return made('norm', x, p=p, dim=_inner_dims(x, dim), keepdim=keepdim)


@handler('linalg_norm')
def _linalg_norm(x: Symbol, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Symbol:
    if type(dim) is not int:
        raise Refused('a norm of matrices')
    return _norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@handler('pairwise_distance')
def _pairwise_distance(x: Symbol, y: Symbol, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Symbol:
    return _norm(made('add', made('sub', x, y), eps), p, -1, keepdim)


@handler('normalize')
def _normalize(x: Symbol, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Symbol:
    return made('normalize', x, p=p, dim=inner_dim(x, dim), eps=eps)


@handler('cosine_similarity')
def _cosine_similarity(x1: Symbol, x2: Symbol, dim: int = 1, eps: float = 1e-8) -> Symbol:
    if x1.shape != x2.shape:
        raise Refused('a cosine similarity of rows of different shapes')
    dims = _inner_dims(x1, dim)
    product = made('mul', *(made('div', x, _length(x, dims, eps)) for x in (x1, x2)))
    return made('sum', product, dims=dims, keepdim=False)


def _length(x: Symbol, dims: tuple[int, ...], eps: float) -> Symbol:
    """At least `eps`; the derivative is that of the length all the same, as in torch."""
    length = made('norm', x, p=2, dim=dims, keepdim=True)
    return made('add', length, made('detach', made('sub', made('clamp', length, eps, None), length)))


@handler('layer_norm')
def _layer_norm(x: Symbol, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Symbol:
    return made('layer_norm', x, tuple(normalized_shape), weight, bias, eps)


def _extreme(op: str) -> Callable:
    def record(x: Symbol, dim: Any = None, keepdim: bool = False) -> Symbol:
        return made(op, x, dim=_inner_dims(x, dim), keepdim=keepdim)

    return record


HANDLERS |= {op: _extreme(op) for op in ('amax', 'amin')}


@handler('cross', 'linalg_cross')
def _cross(x: Symbol, y: Symbol, dim: int = -1) -> Symbol:
    if x.shape != y.shape:
        raise Refused('a cross product of rows of different shapes')
    return made('cross', x, y, dim=inner_dim(x, dim))


def _running(op: str) -> Callable:
    def record(x: Symbol, dim: int, *, dtype: Any = None) -> Symbol:
        _check_dtype(x, dtype)
        return made(op, x, dim=inner_dim(x, dim))

    return record


HANDLERS |= {op: _running(op) for op in ('cumsum', 'cumprod')}


# Maps

# of products of two matrices of each edge so many products of numbers are added up, which programs have words for
_MOST_WRITTEN_OUT = 128


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
        for take in (product, product_of_small, typed_product):
            with contextlib.suppress(Refused):
                return take(x, weight)
        return _product_of_matrices(x, weight)
    _refuse_rows(weight)
    if not isinstance(weight, Symbol) or weight.dim() not in (1, 2):
        raise Refused('a product of matrices of each edge')
    return made('matmul', x, weight) if weight.dim() == 1 else made('linear', x, recorded(torch.t, (weight,)))


def _product_of_matrices(x: Symbol, y: Symbol) -> Symbol:
    """A product of two matrices of each row."""
    are_of_rows = x.rows is not None and not x.is_stacked and not y.is_stacked
    if not are_of_rows or [len(x.node.shape), len(y.node.shape)] != [2, 2]:
        raise Refused('a linear map of each edge of its own')
    if x.node.width * y.node.shape[1] <= _MOST_WRITTEN_OUT:
        products = recorded(torch.mul, (recorded(torch.unsqueeze, (x, 3)), recorded(torch.unsqueeze, (y, 1))))
        return recorded(torch.sum, (products, 2))
    return recorded(torch.einsum, ('eij,ejk->eik', x, y))


@handler('cat', 'concat', 'concatenate')
def _cat(parts: Any, dim: int = 0) -> Symbol:
    first, *others = _of_rows(parts)
    if any(part.is_stacked != first.is_stacked for part in others):
        raise Refused('a concatenation of features of two and of more dimensions')
    return made('cat', (first, *others), dim=inner_dim(first, dim))


@handler('stack')
def _stack(parts: Any, dim: int = 0) -> Symbol:
    first = _of_rows(parts)[0]
    if not isinstance(dim, int):
        raise Refused('stack before the dimension of edges')
    if dim % (first.dim() + 1) == 0:
        if any(part.node.shape != first.node.shape or part.rows != first.rows for part in parts):
            raise Refused('a stack of values of different shapes')
        return Pile(tuple(parts))
    return made('stack', tuple(parts), dim=dim % (first.dim() + 1))


def _of_rows(parts: Any) -> list[Symbol]:
    if any(not isinstance(part, Symbol) or part.rows is None for part in parts):
        raise Refused('a concatenation of values of edges and of parameters')
    return list(parts)


@handler('gru_cell')
def _gru_cell(x: Symbol, state: Symbol, *weights: Any) -> Symbol:
    if x.rows not in OF_NODES or state.rows != x.rows:
        raise Refused('a recurrent cell of something that is no value of nodes')
    return made('gru_cell', x, state, *weights)
