"""Aggregation where autocast is on: which types operands have when they meet, and what is computed without it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import DTYPES
from pygfuse.call.call import common_dtype
from pygfuse.ops.within_torch.lazy_values import all_in_memory
from pygfuse.program.products import Product, tensors_in

NARROW = (torch.float16, torch.bfloat16)
# kinds of devices whose walks load each operand in its own type
MIXING = ('cuda',)


def is_on(device: torch.device) -> bool:
    """Whether autocast is on for tensors of this device."""
    return torch.is_autocast_enabled(device.type)


def dtype_of_maps(x: Tensor) -> torch.dtype:
    """The type in which what linear maps make of features is aggregated: a narrow one under autocast on a CPU, where a
    GPU's layers come back to float32."""
    if not is_on(x.device) or x.dtype is torch.float64:
        return x.dtype
    return torch.float32 if x.is_cuda else torch.get_autocast_dtype(x.device.type)


def off(device: torch.device) -> AbstractContextManager:
    """A ``with`` block in which autocast is off for tensors of this device."""
    return torch.autocast(device.type, enabled=False) if is_on(device) else contextlib.nullcontext()


def is_on_anywhere() -> bool:
    """Whether autocast is on for tensors of any device."""
    return torch._C._is_any_autocast_enabled()


@contextlib.contextmanager
def off_everywhere() -> Iterator[None]:
    """A ``with`` block in which autocast is off for tensors of all devices."""
    with contextlib.ExitStack() as blocks:
        for kind in DTYPES:
            if torch.is_autocast_enabled(kind):
                blocks.enter_context(torch.autocast(kind, enabled=False))
        yield


def in_types_of_forward(backward: Callable) -> Callable:
    """The ``backward`` of a function of autograd as it is without autocast, which may be on where it is called; given
    gradients whose values are in their memory."""

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        grads = all_in_memory(grads)
        if not is_on_anywhere():
            return backward(ctx, *grads)
        with off_everywhere():
            return backward(ctx, *grads)

    return run


def operands(given: Mapping[str, Tensor | Product], reduce: str) -> dict[str, Tensor | Product]:
    """The operands of a call in types that the device's walks take.

    Layers under autocast pass what linear maps give in a narrow type beside float32. Walks of a GPU load each operand
    in its own type and compute in float32, so that only the parts of products are converted; elsewhere, and for
    extremes, which must be found again in backward, all are taken to the type in which they meet, at least float32 if
    the device has no other walks.

    Args:
        given: By name.
        reduce: How messages are reduced.

    Example:
        >>> tensors = {'x': torch.ones(2, 3, dtype=torch.bfloat16), 'weight': torch.ones(1, 3)}
        >>> [tensor.dtype for tensor in operands(tensors, 'sum').values()]
        [torch.float32, torch.float32]
    """
    tensors = tensors_in(given)
    kind, dtype = tensors[0].device.type, common_dtype(tensors)
    if kind in MIXING and reduce in ('sum', 'mean'):
        return {name: _to(value, dtype) if isinstance(value, Product) else value for name, value in given.items()}
    if dtype not in DTYPES[kind]:
        dtype = torch.promote_types(dtype, torch.float32)
    return {name: _to(value, dtype) for name, value in given.items()}


def _to(value: Tensor | Product, dtype: torch.dtype) -> Tensor | Product:
    if isinstance(value, Product):
        return Product(*(None if part is None else part.to(dtype) for part in value))
    return value.to(dtype)
