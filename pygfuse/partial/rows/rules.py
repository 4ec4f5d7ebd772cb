"""What functions of deferred tensors give: other deferred tensors, or the rows that they read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import Index

from pygfuse.ops import Edges, aggregate
from pygfuse.partial.rows import row_wise
from pygfuse.partial.rows.leaves import Structure, flattened, unflattened
from pygfuse.partial.rows.nodes import Aggregated, Aggregation, Given, Item, Mapped, Node, RowWise, tensors_in
from pygfuse.partial.rows.row_set import RowSet
from pygfuse.partial.rows.session import Session
from pygfuse.partial.rows.tensor import Deferred, is_plain, without_shared_memory
from pygfuse.program.products import OperandValue
from pygfuse.program.program import SOURCE, TARGET, EdgeProgram


def defer(session: Session, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a function gives if it can be deferred, or the rows that it reads; NotImplemented for any other."""
    if kwargs.get('out') is not None:
        return NotImplemented
    kwargs = {name: value for name, value in kwargs.items() if name != 'out'}
    if func is aggregate:
        return _defer_aggregation(session, *args, **kwargs)
    if func in row_wise.SELECTIONS:
        found = _selected(func, args, kwargs)
        if found is not NotImplemented:
            return found
    if func is Tensor.to:
        return _cast(session, *args, **kwargs)
    given, in_place = (func, args, kwargs), func in row_wise.IN_PLACE
    func = row_wise.IN_PLACE.get(func, func)
    args, kwargs, also = row_wise.without_in_place(func, args, kwargs)
    if func in row_wise.DROPOUTS:
        found = _dropped(func, args, kwargs)
    elif func in row_wise.LINEAR and is_plain(*args, *kwargs.values()):
        found = _mapped(session, *args, **kwargs)
    elif func in row_wise.RESHAPES:
        found = _reshaped(session, func, args, kwargs)
    else:
        found = _defer_rows(session, func, args, kwargs)
    if found is not NotImplemented and (in_place or also):
        if in_place:
            # raises as PyTorch does where the result has another shape
            _meta(*given)
        if not torch.can_cast(found.dtype, args[0].dtype):
            raise RuntimeError(f"result type {found.dtype} can't be cast to the desired output type {args[0].dtype}")
        return _written(args[0], found)
    return found


def _written(given: Tensor, result: Deferred) -> Tensor:
    """A deferred tensor that was written to in place."""
    if not isinstance(given, Deferred):
        return given.copy_(result.read(None, 'Calling `copy_`'))
    if given._is_shared:
        raise NotImplementedError(
            'An operation in place on a view of a result of layers within `pygfuse.active`: use the form not in place'
        )
    dtype = given.dtype
    given._node = result._node
    if result.dtype != dtype:
        given._node = RowWise(lambda values: values.to(dtype), [result._node], [])
    given._require_a_gradient(result.requires_grad)
    return given


def _dropped(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Dropout: the numbers are drawn now and for all rows, so that they are those of a whole computation."""
    given = inspect.signature(func).bind(*args, **kwargs)
    given.apply_defaults()
    x, p, training = (given.arguments[name] for name in ('input', 'p', 'training'))
    if not training or not 0.0 < p < 1.0:
        return x * 1.0 if not training or p == 0.0 else NotImplemented
    return x * F.dropout(torch.ones(x.shape, dtype=x.dtype, device=x.device), p)


def _mapped(session: Session, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """A linear map of rows that are there, deferred."""
    if input.dim() != 2 or weight.dim() != 2:
        return NotImplemented
    like = torch.empty(input.shape[0], weight.shape[0], dtype=input.dtype, device='meta')
    tensors = [input, weight] if bias is None else [input, weight, bias]
    return _made(session, Mapped(input, weight, bias), like, tensors)


def _reshaped(session: Session, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    shape = _meta(func, args, kwargs).shape
    x = args[0]
    if not shape or shape[0] != x.shape[0] or kwargs or isinstance(args[1], torch.dtype):
        return NotImplemented
    rest = shape[1:]

    def reshape(values: Tensor) -> Tensor:
        return values.reshape(values.shape[0], *rest)

    result = _made(session, RowWise(reshape, [x._node], []), torch.empty(shape, dtype=x.dtype, device='meta'), [x])
    x._is_shared = result._is_shared = True
    return result


def _cast(session: Session, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Another type on the same device, deferred."""
    dtype = kwargs.pop('dtype', None) if not args else args[0]
    if not isinstance(x, Deferred) or not isinstance(dtype, torch.dtype) or len(args) > 1 or kwargs:
        return NotImplemented
    if dtype == x.dtype:
        return x
    like = torch.empty(x.shape, dtype=dtype, device='meta')
    return _made(session, RowWise(lambda values: values.to(dtype), [x._node], []), like, [x])


def _defer_rows(session: Session, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of rows, deferred; NotImplemented if it is none."""
    leaves, structure = flattened(args, kwargs)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    own = [leaf for leaf in tensors if isinstance(leaf, Deferred)]
    total = (own or tensors)[0].shape[:1]
    if not total or any(one.dim() == 0 or one.shape[:1] != total or one._session is not session for one in own):
        return NotImplemented
    if func not in _KNOWN or not args:
        return NotImplemented
    result = _meta(func, args, kwargs)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    if not results or not all(isinstance(one, Tensor) and one.shape[:1] == total for one in results):
        return NotImplemented
    if not _is_row_wise(func, args, kwargs, results[0].dim()):
        return NotImplemented
    elementwise = func in row_wise.ELEMENTWISE
    if elementwise and any(one.dim() != results[0].dim() for one in own):
        return NotImplemented
    with_rows = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Deferred)
        or (isinstance(leaf, Tensor) and _has_rows(func, args, leaf, total[0], results[0].dim()))
    ]
    inputs = [leaf._node if isinstance(leaf, Deferred) else Given(leaf) for leaf in (leaves[i] for i in with_rows)]
    rest = [None if i in with_rows else leaf for i, leaf in enumerate(leaves)]

    def compute(*values: Tensor) -> Any:
        filled = list(rest)
        for i, value in zip(with_rows, values, strict=True):
            filled[i] = value
        given, named = unflattened(filled, structure)
        return func(*given, **named)

    node = RowWise(compute, inputs, [leaf for leaf in rest if isinstance(leaf, Tensor)])
    if result is results[0]:
        found = _made(session, node, result, tensors, func not in row_wise.DETACHING)
        found._is_shared = func in row_wise.VIEWS
        if found._is_shared:
            own[0]._is_shared = True
        return found
    made = [_made(session, Item(node, i), one, tensors) for i, one in enumerate(results)]
    for one in (*made, *own):
        one._is_shared = True
    return type(result)(made)


_KNOWN = (
    row_wise.ELEMENTWISE | {*row_wise.ALONG} | row_wise.LINEAR | row_wise.PRODUCTS | row_wise.LAYER_NORMS
)  # fmt: skip


def _is_row_wise(func: Callable, args: tuple, kwargs: dict[str, Any], result_dims: int) -> bool:
    if func in row_wise.ELEMENTWISE:
        return True
    if func in row_wise.ALONG:
        return is_plain(*args[1:]) and row_wise.is_along_other_dimensions(func, args, kwargs, result_dims)
    if func in row_wise.LAYER_NORMS:
        shape = args[1] if len(args) > 1 else kwargs.get('normalized_shape', ())
        return len(shape) < args[0].dim() and is_plain(*args[2:], *kwargs.values())
    # a linear map
    weight = args[1] if len(args) > 1 else kwargs.get('weight', kwargs.get('other', kwargs.get('mat2')))
    first = args[0] if args else None
    return (
        isinstance(first, Tensor) and first.dim() >= 2 and weight.dim() <= 2 and is_plain(*args[1:], *kwargs.values())
    )


def _has_rows(func: Callable, args: tuple, tensor: Tensor, total: int, result_dims: int) -> bool:
    """Whether a tensor that is there has a row for each of the result's."""
    if func in row_wise.ELEMENTWISE:
        return tensor.dim() == result_dims and tensor.shape[0] == total != 1
    if func in row_wise.LINEAR or func in row_wise.PRODUCTS:
        return tensor is args[0]
    return func in row_wise.JOINS


def _meta(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The result with no values, for its shape and type."""
    leaves, structure = flattened(args, kwargs)
    described = tuple(
        (_LIKE, one.shape, one.dtype) if isinstance(one, Tensor) else (type(one), one, None) for one in leaves
    )
    given = func, described, structure, torch.get_default_dtype()
    try:
        hash(described)
    except TypeError:
        return _result_of.__wrapped__(*given)
    return _result_of(*given)


# stands for a tensor's type, where others stand for themselves
_LIKE = 'a tensor'


@functools.lru_cache(maxsize=1024)
def _result_of(func: Callable, described: tuple[tuple, ...], structure: Structure, default: torch.dtype) -> Any:
    """What a function gives for arguments of such shapes and types: torch takes a tenth of a millisecond to say so."""
    leaves = [
        torch.empty(value, dtype=dtype, device='meta') if kind is _LIKE else value for kind, value, dtype in described
    ]
    args, kwargs = unflattened(leaves, structure)
    with torch.no_grad():
        return func(*args, **kwargs)


def _made(
    session: Session, node: Node, like: Tensor, tensors: Sequence[Tensor], may_require_grad: bool = True
) -> Deferred:
    requires_grad = may_require_grad and torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    return Deferred(node, like, tensors[0].device, session, requires_grad)


def _defer_aggregation(
    session: Session,
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, OperandValue],
    *arguments: Any,
    **options: Any,
) -> Any:
    of = Aggregation(program, edges, *arguments, **options)
    sides = {name: program.operands[name].side for name in operands}
    rows = {
        name: value._node if isinstance(value, Deferred) else Given(value)
        for name, value in operands.items()
        if isinstance(value, Tensor) and sides[name] in (SOURCE, TARGET)
    }
    others = {name: value for name, value in operands.items() if name not in rows}
    if SOURCE not in sides.values() or not is_plain(*others.values()):
        return NotImplemented
    tensors = [*tensors_in([*operands.values()])]
    shape = (of.heads * of.channels,) if of.flat else (of.heads, of.channels)
    like = torch.empty(edges.num_targets, *shape, dtype=tensors[0].dtype, device='meta')
    return _made(session, Aggregated(of, rows, others), like, tensors)


def _selected(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Rows that are read by ``x[rows]``, ``x[rows, ...]`` or ``index_select``; other columns of all rows, deferred."""
    x = args[0]
    if not isinstance(x, Deferred) or not x.dim():
        return NotImplemented
    if func is not Tensor.__getitem__:
        given = dict(zip(('input', 'dim', 'index'), args, strict=False)) | kwargs
        if given['dim'] % x.dim() or not is_plain(given['index']):
            return NotImplemented
        first, rest = given['index'], ()
    else:
        key = args[1] if isinstance(args[1], tuple) else (args[1],)
        first, rest = key[0], key[1:]
        if not is_plain(*key):
            return NotImplemented
    total = x.shape[0]
    if isinstance(first, slice):
        if first == slice(None):
            return _columns(x, key) if rest else NotImplemented
        rows = torch.arange(total, device=x.device)[first]
        place = slice(None) if rows.numel() < total else first
        values = x.read(RowSet.of(rows, total), f'Reading rows {_text(first)}')
        return without_shared_memory(values[(place, *rest)], [values])
    if isinstance(first, int) and not isinstance(first, bool):
        rows = torch.tensor([first], device=x.device)
        values = x.read(RowSet.of(rows, total), f'Reading row {first}')
        return without_shared_memory(values[(0 if total > 1 else first, *rest)], [values])
    is_list = isinstance(first, list) and all(isinstance(one, (int, np.integer)) for one in first)
    if is_list or isinstance(first, (np.ndarray, np.integer)):
        first = torch.as_tensor(first, device=x.device)
    if isinstance(first, Index):  # PyG's, which computes little of its own
        first = first.as_tensor()
    if not isinstance(first, Tensor):
        return NotImplemented
    is_mask = first.dtype == torch.bool and first.shape == (total,)
    if not is_mask and first.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    wanted = RowSet.of(first if is_mask else first.long().flatten(), total)
    values = x.read(wanted, f'Reading rows by {"a mask" if is_mask else "their numbers"}')
    if is_mask and not rest:
        return without_shared_memory(values, [values])
    numbers = first.nonzero().flatten() if is_mask else torch.where(first < 0, first + total, first).long()
    places = numbers if wanted is None else torch.searchsorted(wanted.index, numbers)
    return values[(places, *rest)]


def _text(rows: slice) -> str:
    parts = [rows.start, rows.stop] + ([] if rows.step is None else [rows.step])
    return ':'.join('' if part is None else str(part) for part in parts)


def _columns(x: Deferred, key: tuple) -> Any:
    """``x[:, ...]``, deferred."""
    if not all(isinstance(one, (int, slice)) or one is None for one in key):
        return NotImplemented
    like = torch.empty(x.shape, dtype=x.dtype, device='meta')[key]
    found = _made(x._session, RowWise(lambda values: values[key], [x._node], []), like, [x])
    x._is_shared = found._is_shared = True
    return found
