"""Tensors that are computed when they are read, and then only the rows that are read.

A `Deferred` has the shape and type of what it stands for, but no values. A function that computes each row of its
result from the same rows of its arguments, and an aggregation over edges, gives another one (`rules`). Any other
function reads: then the rows that it needs, and all that these need in turn, are computed, in the order in which the
program called for them and with the same random numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from pygfuse._lib.of_shape import OF_SHAPE, told_by_shape
from pygfuse.partial.rows import row_wise
from pygfuse.partial.rows.leaves import flattened
from pygfuse.partial.rows.nodes import Node, evaluate, is_kept, kept_rows
from pygfuse.partial.rows.row_set import RowSet, chosen
from pygfuse.partial.rows.session import NAN, Session, runs_at_once

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
    _shape: torch.Size
    _dtype: torch.dtype
    _device: torch.device

    @staticmethod
    def __new__(cls, node: Node, like: Tensor, device: torch.device, session: Session, requires_grad: bool) -> Deferred:
        made = Tensor._make_wrapper_subclass(
            cls, like.shape, dtype=like.dtype, device=device, requires_grad=requires_grad and like.is_floating_point()
        )
        made._node, made._session, made._is_shared = node, session, False
        made._shape, made._dtype, made._device = like.shape, like.dtype, device
        made._refuse_its_gradient()
        return made

    # what layers ask again and again, told without asking who may want to answer
    shape = property(operator.attrgetter('_shape'))
    dtype = property(operator.attrgetter('_dtype'))
    device = property(operator.attrgetter('_device'))
    layout = torch.strided

    def dim(self) -> int:
        return len(self._shape)

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
        if func in OF_SHAPE:
            return told_by_shape(func, args, kwargs)
        kwargs = kwargs or {}
        if args and func in _NEW | _LIKE:
            first = args[0]
            return func(torch.empty(first.shape, dtype=first.dtype, device=first.device), *args[1:], **kwargs)
        if func == Tensor.is_leaf.__get__:
            return not args[0]._requires_a_gradient()
        own = [one for one in flattened(args, kwargs)[0] if isinstance(one, Deferred)]
        for one in own:
            one.check_without_history()
        if func == Tensor.grad_fn.__get__:
            return args[0]._history()
        if func is torch.autograd.grad:
            _check_inputs(args[1])
        found = NotImplemented
        # nothing that writes in place is cast automatically
        if func in row_wise.SELECTIONS or not runs_at_once() or row_wise.writes_to_first(func, args, kwargs):
            session = own[0]._session
            found = session.defer(session, func, args, kwargs)
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


def without_shared_memory(result: Any, read: Sequence[Tensor]) -> Any:
    """What a function gives, without memory of what it read: writing to it must not change values that are kept.

    Args:
        result: What the function gave, or a structure of it.
        read: What it read.
    """
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
    return without_shared_memory(func(*tree_map(read, args), **tree_map(read, kwargs)), values)


def is_plain(*values: Any) -> bool:
    """Whether no value, and none in a value, is deferred."""
    return not any(isinstance(leaf, Deferred) for leaf in flattened(values, {})[0])
