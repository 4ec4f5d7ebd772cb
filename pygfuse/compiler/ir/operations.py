"""The operators of the intermediate representation, as functions of tensors whose first dimension are the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from pygfuse.compiler.ir.selections import selected
from pygfuse.ops.typed.typed_product import TypedRows, typed_product
from pygfuse.program.vocabulary import dropout_factor


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operator.

    Attributes:
        run: What it computes.
        elementwise: Whether each number of the result is computed from the numbers at its place.
        linear: Whether it is additive in its first argument.
        row_wise: Whether each row of the result is computed from the same rows.
        aligned: Whether its arguments are broadcast against each other.
        residency: Where its result resides, if that does not follow from its arguments.
        selects: Whether it only puts numbers of its first argument elsewhere.
    """

    run: Callable[..., Tensor]
    elementwise: bool = False
    linear: bool = False
    row_wise: bool = True
    aligned: bool = False
    residency: str | None = None
    selects: bool = False


class Results(tuple):
    """Several values that a layer returns, where a value is expected."""

    shape, dtype = (), torch.float32


OPERATIONS: dict[str, Operation] = {}


def _elementwise(name: str, run: Callable[..., Tensor]) -> None:
    OPERATIONS[name] = Operation(run, elementwise=True, aligned=True)


def _selecting(name: str, run: Callable[..., Tensor]) -> None:
    OPERATIONS[name] = Operation(run, linear=True, selects=True)


for _name in ('add', 'sub', 'mul', 'div', 'maximum', 'minimum', 'gt', 'lt', 'ge', 'le', 'eq', 'ne', 'where', 'pow'):
    _elementwise(_name, getattr(torch, _name))
for _name in ('neg', 'exp', 'expm1', 'log', 'sqrt', 'sigmoid', 'tanh', 'abs', 'square', 'relu', 'sin', 'cos', 'rsqrt'):
    _elementwise(_name, getattr(torch, _name))
for _name in ('log1p', 'reciprocal', 'sign', 'erf', 'detach', 'logical_not', 'logical_and', 'logical_or'):
    _elementwise(_name, getattr(torch, _name))
for _name in ('leaky_relu', 'elu', 'silu', 'gelu', 'softplus', 'selu', 'celu', 'relu6', 'logsigmoid', 'softsign'):
    _elementwise(_name, getattr(F, _name))
# these have no words in programs: they run on chunks of edges
for _name in ('atan2', 'hypot', 'atan', 'asin', 'acos', 'tan', 'sinh', 'cosh', 'asinh', 'acosh', 'atanh', 'sinc'):
    _elementwise(_name, getattr(torch, _name))
for _name in ('exp2', 'log2', 'log10', 'erfc', 'floor', 'ceil', 'round', 'trunc', 'remainder', 'fmod', 'logaddexp',
              'nan_to_num'):  # fmt: skip
    _elementwise(_name, getattr(torch, _name))
for _name in ('mish', 'hardsigmoid', 'hardswish', 'tanhshrink', 'softshrink', 'hardshrink', 'threshold'):
    _elementwise(_name, getattr(F, _name))
_elementwise('clamp', torch.clamp)
_elementwise('hardtanh', F.hardtanh)
_elementwise('masked_fill', torch.masked_fill)
# 1 where a condition holds, 0 elsewhere
_elementwise('indicator', lambda x, dtype: x.to(dtype))
_elementwise('converted', lambda x, dtype: x.to(dtype))
_elementwise('prelu', lambda x, weight: torch.where(x > 0, x, x * weight))


def _sum(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    return x.sum(dims, keepdim=keepdim)


def _values_of(function: Callable) -> Callable:
    """An extreme along a dimension, without its places: of numbers that tie one has the gradient."""

    def run(x: Tensor, dim: int, keepdim: bool) -> Tensor:
        return function(x, dim, keepdim).values

    return run


def _row_function(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **attributes: function(*args, **attributes)


def _parameter_columns(x: Tensor, take: Sequence[int]) -> Tensor:
    return selected(x.reshape(1, -1), take)


def _lookup(table: Tensor, rows: Tensor, counts_back: bool) -> Tensor:
    """Rows of a shared table, one for each number; if `counts_back`, negative numbers count from its end."""
    if counts_back:
        rows = torch.where(rows < 0, rows + table.shape[0], rows)
    # by brackets the same takes five times as long, most of it backward
    return table.index_select(0, rows)


def _own_matrix(x: Tensor, numbers: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ W`` of each row, where the numbers in W are a linear map of `numbers`."""
    weight = weight.view(x.shape[1], -1, weight.shape[1])
    found = torch.einsum('ek,ei,iok->eo', numbers, x, weight)
    return found if bias is None else found + x @ bias.view(weight.shape[:2])


def _typed_map(
    x: Tensor, table: Tensor, types: Tensor, counts_back: bool = False, is_beside_others: bool = False
) -> Tensor:
    """Each row times the matrix of its type, ``table[types]``, or block-diagonal ones; `counts_back` as of lookups."""
    width = table[0, ..., 0, :].numel()
    if x.device.type == 'meta':
        return x.new_empty(x.shape[0], width)
    if counts_back:
        types = torch.where(types < 0, types + table.shape[0], types)
    order = types.argsort(stable=True)
    bounds = [0, *torch.bincount(types, minlength=table.shape[0]).cumsum(0).tolist()]
    return typed_product(x, table, TypedRows(tuple(bounds), order, order, x.shape[0]))


def _placement(x: Tensor, take: Sequence[int], width: int) -> Tensor:
    """The matrix by which rows of `width` numbers are multiplied to give the numbers at places `take`."""
    places = torch.tensor(take, device=x.device)
    return (torch.arange(width, device=x.device).unsqueeze(1) == places).to(x.dtype)


def _normalised(x: Tensor, *given: Any, module: Module) -> Tensor:
    """What a module gives of all rows together; for shapes alone its statistics stay."""
    return x if x.device.type == 'meta' else module(x, *given)


def _of_layer(_: Tensor, place: int, row: tuple[int, ...], of_type: torch.dtype, **edges: Any) -> Tensor:
    return torch.empty((1, *row), dtype=of_type, device='meta')


def _call(*args: Any, function: Callable, keywords: tuple) -> Any:
    return function(*args, **dict(keywords))


def piece_of(*args: Any, piece: int, function: Callable, **keywords: Any) -> Tensor:
    """One of several values that a function gives."""
    return function(*args, **keywords)[piece]


_selecting('reshape', lambda x, shape: x.reshape(x.shape[0], *shape))
_selecting('expand', lambda x, shape: x.expand(x.shape[0], *shape))
_selecting('permute', lambda x, dims: x.permute(dims))
_selecting('index', lambda x, places: x[(slice(None), *places)])
_selecting('repeat', lambda x, repeats: x.repeat(1, *repeats))
OPERATIONS['cat'] = Operation(lambda parts, dim: torch.cat(parts, dim))
OPERATIONS['lookup'] = Operation(_lookup)
OPERATIONS['stack'] = Operation(lambda parts, dim: torch.stack(parts, dim))
OPERATIONS['sum'] = Operation(_sum, linear=True)
OPERATIONS['linear'] = Operation(F.linear, linear=True)
OPERATIONS['matmul'] = Operation(torch.matmul, linear=True)
for _name in ('amax', 'amin', 'prod', 'norm', 'softmax_of_row', 'log_softmax_of_row', 'normalize', 'layer_norm', 'std'):
    _function = {'softmax_of_row': torch.softmax, 'log_softmax_of_row': torch.log_softmax}.get(_name)
    _function = _function or getattr(F, _name, None) or getattr(torch, _name)
    OPERATIONS[_name] = Operation(_row_function(_function))
for _name, _function in (('max_in_row', torch.max), ('min_in_row', torch.min)):
    OPERATIONS[_name] = Operation(_values_of(_function))
for _name in ('cross', 'cumsum', 'cumprod'):
    OPERATIONS[_name] = Operation(getattr(torch, _name))
OPERATIONS['own_matrix'] = Operation(_own_matrix)
OPERATIONS['typed_map'] = Operation(_typed_map)
# a row for each pair of a type of edges and a source; here for shapes alone
OPERATIONS['typed_product'] = Operation(
    lambda x, table, types, is_of_pairs: _typed_map(x, table, types), residency='source'
)
OPERATIONS['of_pairs'] = Operation(lambda x, types, count: x, residency='source')
OPERATIONS['einsum'] = Operation(lambda *tensors, equation: torch.einsum(equation, *tensors))
# over all edges, wherever its argument resides
OPERATIONS['batch_norm'] = Operation(_normalised, residency='edge')
# what is computed of shared values alone, whatever it is
OPERATIONS['call'] = Operation(_call, row_wise=False)
OPERATIONS['columns'] = Operation(selected)
OPERATIONS['parameter_columns'] = Operation(_parameter_columns, row_wise=False)
OPERATIONS['placement'] = Operation(_placement, row_wise=False, residency='shared')
# what takes the edges to compute; here for shapes alone
OPERATIONS['on_edges'] = Operation(lambda x: x, residency='edge', selects=True)
# a value of nodes as one of an end of the edges, where sources and targets are the same nodes
OPERATIONS['of_sources'] = Operation(lambda x, **edges: x, residency='source')
OPERATIONS['of_targets'] = Operation(lambda x, **edges: x, residency='target')
# the same of a value of one end, which edges that lead back have at the other
OPERATIONS['as_sources'] = Operation(lambda x: x, residency='source')
OPERATIONS['as_targets'] = Operation(lambda x: x, residency='target')
# a shared value as one of nodes, of which there are as many as it has rows
OPERATIONS['as_nodes'] = Operation(lambda x: x, row_wise=False, residency='target')
OPERATIONS['softmax'] = Operation(lambda x, **edges: x, residency='edge')
OPERATIONS['softmax_of_sources'] = Operation(lambda x, **edges: x, residency='edge')
# rows of other edges of the same values, as of those that lead back
OPERATIONS['of_other_edges'] = Operation(_lookup, residency='edge')
OPERATIONS['dropout'] = Operation(lambda x, p: x, residency='edge')
# what values of edges are multiplied by for a dropout, from their marks and from keys and probabilities of channels
OPERATIONS['dropout_factor'] = Operation(lambda marks, draws: dropout_factor(marks, *draws), residency='edge')
# of all nodes
OPERATIONS['dropout_of_nodes'] = Operation(lambda x, p: x if x.device.type == 'meta' else F.dropout(x, p))
OPERATIONS['norm_of_nodes'] = Operation(_normalised)
# a layer within a module, called as it is, and values of nodes or edges that it gives
OPERATIONS['layer'] = Operation(
    lambda *_, **__: torch.empty(1, dtype=torch.bool, device='meta'), row_wise=False, residency='target'
)
for _name in ('target', 'source', 'edge'):
    OPERATIONS[f'{_name}s_of_layer'] = Operation(_of_layer, row_wise=False, residency=_name)
OPERATIONS['gru_cell'] = Operation(torch.gru_cell)
# of all targets; and what is made of their number alone
OPERATIONS['largest'] = Operation(torch.amax, row_wise=False, residency='shared')
# any function of torch of all nodes, of whose numbers it gives a row for each, or one value
OPERATIONS['of_nodes'] = Operation(_call)
OPERATIONS['over_nodes'] = Operation(_call, row_wise=False, residency='shared')
OPERATIONS['number_of_rows'] = Operation(lambda: None, row_wise=False, residency='shared')
OPERATIONS['filled'] = Operation(lambda: None, residency='target')
# several values that a layer returns, of edges and targets
OPERATIONS['results'] = Operation(lambda *found: Results(found), row_wise=False, residency='target')
OPERATIONS['reduce_to_sources'] = Operation(lambda x, reduce, **edges: x, residency='target')
OPERATIONS['reduce'] = Operation(lambda x, reduce, **attributes: x, residency='target')
# to another number of rows than there are targets
OPERATIONS['resized'] = Operation(lambda x, size: x, residency='target')
