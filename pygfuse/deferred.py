"""Tensors that are computed when they are read, and then only the rows that are read.

A `Deferred` has the shape and type of what it stands for, but no values. A function that computes each row of its
result from the same rows of its arguments, and an aggregation over edges, gives another one. Any other function reads:
then the rows that it needs, and all that these need in turn, are computed, in the order in which the program called
for them and with the same random numbers.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch_geometric import Index

from pygfuse import autocast, row_wise
from pygfuse.aggregate import Edges, aggregate
from pygfuse.evaluation import (
    Aggregated,
    Aggregation,
    Given,
    Item,
    Mapped,
    Node,
    RowWise,
    evaluate,
    is_kept,
    kept_rows,
    tensors_of,
)
from pygfuse.products import Value
from pygfuse.program import SOURCE, TARGET, EdgeProgram
from pygfuse.row_set import RowSet, chosen

RAISE, NAN = 'raise', 'nan'


_open_blocks: contextvars.ContextVar[int] = contextvars.ContextVar('pygfuse_active', default=0)


@contextlib.contextmanager
def putting_off() -> Iterator[None]:
    """Says that layers are put off within a ``with`` block."""
    token = _open_blocks.set(_open_blocks.get() + 1)
    try:
        yield
    finally:
        _open_blocks.reset(token)


def is_putting_off() -> bool:
    """Whether layers are put off here."""
    return _open_blocks.get() > 0


def is_passed_by() -> bool:
    """Whether functions run at once all the same: what is compiled, traced or cast automatically."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or autocast.is_on_anywhere()


class Session:
    """A ``with`` block in which tensors are deferred: what may be read of them after its end.

    Attributes:
        rows: The rows that may be read; None for all.
        total: How many rows there are.
        elsewhere: ``'raise'`` or ``'nan'``: what reading others does.
        is_open: Whether the block has not ended; until then, all rows may be read.
    """

    def __init__(self, rows: RowSet | None, total: int, elsewhere: str) -> None:
        self.rows = rows
        self.total = total
        self.elsewhere = elsewhere
        self.is_open = True


_PROPERTIES = (
    'device', 'dtype', 'is_cpu', 'is_cuda', 'is_meta', 'is_nested', 'is_quantized', 'is_sparse',
    'is_sparse_csr', 'itemsize', 'layout', 'names', 'nbytes', 'ndim', 'requires_grad', 'shape',
)  # fmt: skip
_OF_SHAPE = {getattr(Tensor, name).__get__ for name in _PROPERTIES if hasattr(Tensor, name)} | {
    *(Tensor.dim, Tensor.element_size, Tensor.get_device, Tensor.is_complex, Tensor.is_floating_point, Tensor.__len__),
    *(Tensor.is_inference, Tensor.ndimension, Tensor.nelement, Tensor.numel, Tensor.size),
    *(torch.is_floating_point, torch.is_complex, torch.numel),
}
# what they give shares memory with the tensor, and is none itself
_EXPORTS = {Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.untyped_storage}
# what they give has the type, or the shape too, of the tensor, and none of its values
_NEW = {Tensor.new_empty, Tensor.new_full, Tensor.new_ones, Tensor.new_zeros, Tensor.new_tensor}
_LIKE = {torch.empty_like, torch.full_like, torch.ones_like, torch.rand_like, torch.randn_like, torch.zeros_like}


class Deferred(Tensor):
    """A tensor of a row for each node that is computed when it is read, see the module."""

    _node: Node
    _session: Session
    # whether another one may share its memory
    _is_shared: bool

    @staticmethod
    def __new__(cls, node: Node, like: Tensor, device: torch.device, session: Session, requires_grad: bool) -> Deferred:
        made = Tensor._make_wrapper_subclass(
            cls, like.shape, dtype=like.dtype, device=device, requires_grad=requires_grad and like.is_floating_point()
        )
        made._node, made._session, made._is_shared = node, session, False
        made._refuse_its_gradient()
        return made

    def _refuse_its_gradient(self) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            if self.requires_grad:
                self.register_hook(_refuse_gradient)

    def _require_a_gradient(self, requires_grad: bool) -> None:
        """Says whether the values have gradients from here on."""
        if requires_grad != self._requires_a_gradient():
            with torch._C.DisableTorchFunctionSubclass():
                self.requires_grad_(requires_grad)
            self._refuse_its_gradient()

    def _requires_a_gradient(self) -> bool:
        with torch._C.DisableTorchFunctionSubclass():
            return self.requires_grad

    def check_without_history(self) -> None:
        """Raises a RuntimeError if autograd takes the tensor itself for a result: of a function of one's own."""
        with torch._C.DisableTorchFunctionSubclass():
            if self.grad_fn is not None:
                _refuse_gradient(self)

    def _history(self) -> Any:
        """The ``grad_fn`` of the values that are there, or else of those that may be read."""
        if not self._requires_a_gradient():
            return None
        if self._node.kept is None:
            evaluate(self._node, self._session.rows if self.shape[0] == self._session.total else None)
        return self._node.kept[1].grad_fn

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_SHAPE:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if args and func in _NEW | _LIKE:
            first = args[0]
            return func(torch.empty(first.shape, dtype=first.dtype, device=first.device), *args[1:], **kwargs)
        if func == Tensor.is_leaf.__get__:
            return not args[0]._requires_a_gradient()
        own = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Deferred)]
        for one in own:
            one.check_without_history()
        if func == Tensor.grad_fn.__get__:
            return args[0]._history()
        if func is torch.autograd.grad:
            _check_inputs(args[1])
        found = NotImplemented
        # nothing that writes in place is cast automatically
        if func in row_wise.SELECTIONS or not is_passed_by() or row_wise.writes_to_first(func, args, kwargs):
            found = deferred(own[0]._session, func, args, kwargs)
        if found is NotImplemented:
            found = _read_by(func, args, kwargs)
        return found

    @classmethod
    def __torch_dispatch__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        # autograd is above this: to compute here would lose gradients
        raise RuntimeError(f'{func} cannot read a result of layers within `pygfuse.active`: index it first')

    def read(self, rows: RowSet | None, reader: str) -> Tensor:
        """The values of some rows, None for all. They may be those that are kept: nobody may write to them.

        Args:
            rows: The rows.
            reader: What is read or called, for messages: the beginning of a sentence.

        Raises:
            ValueError: If the block in which the tensor was made has ended, and does not give these rows.
        """
        session = self._session
        if session.is_open or self.shape[0] != session.total or session.rows is None:
            return _evaluated(self._node, rows)
        allowed = session.rows
        values = _evaluated(self._node, allowed)
        if rows is not None and rows.is_within(allowed):
            return chosen(values, allowed, rows)
        if session.elsewhere == NAN and self.is_floating_point():
            whole = values.new_full((session.total, *values.shape[1:]), float('nan'))
            return chosen(whole.index_copy(0, allowed.index, values), None, rows)
        raise ValueError(
            f'{reader} needs rows outside of the mask given to `pygfuse.active`: after the block only the '
            f"{len(allowed)} of {session.total} rows in the mask can be read, as out[mask] (with elsewhere='nan' the "
            'others are NaN; within the block all can be read)'
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f'Deferred(shape={list(self.shape)}, dtype={self.dtype})'

    def __format__(self, format_spec: str) -> str:
        # as `Tensor` does it where there are dimensions
        return object.__format__(self, format_spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.read(None, 'Copying').__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict) -> Tensor:
        return self.read(None, 'Copying').__deepcopy__(memo)


def _refuse_gradient(_: Tensor) -> None:
    raise RuntimeError(
        'A torch.autograd.Function took a result of layers within `pygfuse.active` that was not computed yet: its '
        'gradient would be lost. Give it rows, x[index], or call the layers outside of the block'
    )


def _check_inputs(inputs: Any) -> None:
    """Raises a RuntimeError if gradients are wanted with respect to what was not computed: nothing depends on it."""
    if any(isinstance(one, Deferred) and one._node.kept is None for one in tree_flatten(inputs)[0]):
        raise RuntimeError(
            'A gradient is wanted with respect to a result of layers within `pygfuse.active` that was not read: take '
            'its values, x = x[:], before others are computed from them'
        )


def _evaluated(node: Node, rows: RowSet | None) -> Tensor:
    if is_kept(node, rows) or (node.kept is not None and rows is not None and rows.is_within(node.kept[0])):
        return kept_rows(node, rows)
    return evaluate(node, rows)


def _apart(result: Any, read: Sequence[Tensor]) -> Any:
    """What a function gives, without memory of what it read: writing to it must not change values that are kept."""
    memory = {_memory(one) for one in read} - {None}

    def copied(one: Any) -> Any:
        return one.clone() if isinstance(one, Tensor) and _memory(one) in memory else one

    return tree_map(copied, result)


def _memory(tensor: Tensor) -> int | None:
    """The address of a tensor's memory; None for what has none of its own."""
    return tensor.untyped_storage().data_ptr() if type(tensor) is Tensor and tensor.layout is torch.strided else None


def _read_by(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Calls a function that is not row-wise with all the values."""
    is_attribute = getattr(func, '__name__', '') == '__get__'
    name = func.__self__.__name__ if is_attribute else getattr(func, '__name__', str(func))
    values: list[Tensor] = []

    def read(one: Any) -> Any:
        if not isinstance(one, Deferred):
            return one
        values.append(one.read(None, f'Reading `{name}`' if is_attribute else f'Calling `{name}`'))
        return values[-1].clone() if func in _EXPORTS else values[-1]

    if isinstance(kwargs.get('out'), Deferred):
        raise NotImplementedError(f'{name} with a result of layers within `pygfuse.active` as `out`: use its result')
    if row_wise.writes_to_first(func, args, kwargs) and isinstance(args[0], Deferred):
        # what is written to has to be a tensor from here on
        raise NotImplementedError(f'{name} on a result of layers within `pygfuse.active`: use the form not in place')
    return _apart(func(*tree_map(read, args), **tree_map(read, kwargs)), values)


def deferred(session: Session, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a function gives if it can be put off, or the rows that it reads; NotImplemented for any other."""
    if kwargs.get('out') is not None:
        return NotImplemented
    kwargs = {name: value for name, value in kwargs.items() if name != 'out'}
    if func is aggregate:
        return _put_off_aggregation(session, *args, **kwargs)
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
    elif func in row_wise.LINEAR and is_plain((args, kwargs)):
        found = _mapped(session, *args, **kwargs)
    elif func in row_wise.RESHAPES:
        found = _reshaped(session, func, args, kwargs)
    else:
        found = _put_off(session, func, args, kwargs)
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
    """A linear map of rows that are there, put off."""
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
    """Another type on the same device, put off."""
    dtype = kwargs.pop('dtype', None) if not args else args[0]
    if not isinstance(x, Deferred) or not isinstance(dtype, torch.dtype) or len(args) > 1 or kwargs:
        return NotImplemented
    if dtype == x.dtype:
        return x
    like = torch.empty(x.shape, dtype=dtype, device='meta')
    return _made(session, RowWise(lambda values: values.to(dtype), [x._node], []), like, [x])


def _put_off(session: Session, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A function of rows, put off; NotImplemented if it is none."""
    leaves, structure = tree_flatten((args, kwargs))
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
        given, named = tree_unflatten(filled, structure)
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
        return is_plain(args[1:]) and row_wise.is_along_other_dimensions(func, args, kwargs, result_dims)
    if func in row_wise.LAYER_NORMS:
        shape = args[1] if len(args) > 1 else kwargs.get('normalized_shape', ())
        return len(shape) < args[0].dim() and is_plain((args[2:], kwargs))
    # a linear map
    weight = args[1] if len(args) > 1 else kwargs.get('weight', kwargs.get('other', kwargs.get('mat2')))
    first = args[0] if args else None
    return isinstance(first, Tensor) and first.dim() >= 2 and weight.dim() <= 2 and is_plain((args[1:], kwargs))


def is_plain(values: Any) -> bool:
    """Whether no value is deferred."""
    return not any(isinstance(leaf, Deferred) for leaf in tree_flatten(values)[0])


def _has_rows(func: Callable, args: tuple, tensor: Tensor, total: int, result_dims: int) -> bool:
    """Whether a tensor that is there has a row for each of the result's."""
    if func in row_wise.ELEMENTWISE:
        return tensor.dim() == result_dims and tensor.shape[0] == total != 1
    if func in row_wise.LINEAR or func in row_wise.PRODUCTS:
        return tensor is args[0]
    return func in row_wise.JOINS


def _meta(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The result with no values, for its shape and type."""

    def without_values(one: Any) -> Any:
        return torch.empty(one.shape, dtype=one.dtype, device='meta') if isinstance(one, Tensor) else one

    with torch.no_grad():
        return func(*tree_map(without_values, args), **tree_map(without_values, kwargs))


def _made(
    session: Session, node: Node, like: Tensor, tensors: Sequence[Tensor], may_require_grad: bool = True
) -> Deferred:
    requires_grad = may_require_grad and torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    return Deferred(node, like, tensors[0].device, session, requires_grad)


def _put_off_aggregation(
    session: Session,
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, Value],
    heads: int,
    channels: int,
    reduce: str = 'sum',
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Any:
    of = Aggregation(program, edges, heads, channels, reduce, dropout, seed)
    sides = {name: program.operands[name].side for name in operands}
    rows = {
        name: value._node if isinstance(value, Deferred) else Given(value)
        for name, value in operands.items()
        if isinstance(value, Tensor) and sides[name] in (SOURCE, TARGET)
    }
    others = {name: value for name, value in operands.items() if name not in rows}
    if SOURCE not in sides.values() or not is_plain([*others.values()]):
        return NotImplemented
    tensors = [*tensors_of([*operands.values()])]
    like = torch.empty(edges.num_targets, heads, channels, dtype=tensors[0].dtype, device='meta')
    return _made(session, Aggregated(of, rows, others), like, tensors)


def _selected(func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Rows that are read by ``x[rows]``, ``x[rows, ...]`` or ``index_select``; other columns of all rows, put off."""
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
        if not is_plain(key):
            return NotImplemented
    total = x.shape[0]
    if isinstance(first, slice):
        if first == slice(None):
            return _columns(x, key) if rest else NotImplemented
        rows = torch.arange(total, device=x.device)[first]
        place = slice(None) if rows.numel() < total else first
        values = x.read(RowSet.of(rows, total), f'Reading rows {_text(first)}')
        return _apart(values[(place, *rest)], [values])
    if isinstance(first, int) and not isinstance(first, bool):
        rows = torch.tensor([first], device=x.device)
        values = x.read(RowSet.of(rows, total), f'Reading row {first}')
        return _apart(values[(0 if total > 1 else first, *rest)], [values])
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
        return _apart(values, [values])
    numbers = first.nonzero().flatten() if is_mask else torch.where(first < 0, first + total, first).long()
    places = numbers if wanted is None else torch.searchsorted(wanted.index, numbers)
    return values[(places, *rest)]


def _text(rows: slice) -> str:
    parts = [rows.start, rows.stop] + ([] if rows.step is None else [rows.step])
    return ':'.join('' if part is None else str(part) for part in parts)


def _columns(x: Deferred, key: tuple) -> Any:
    """``x[:, ...]``, put off."""
    if not all(isinstance(one, (int, slice)) or one is None for one in key):
        return NotImplemented
    like = torch.empty(x.shape, dtype=x.dtype, device='meta')[key]
    found = _made(x._session, RowWise(lambda values: values[key], [x._node], []), like, [x])
    x._is_shared = found._is_shared = True
    return found
