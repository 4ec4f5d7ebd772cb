"""The arguments of a launch: their types, and the 64-bit words that are passed."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import torch

KINDS = {
    torch.float32: 'float32',
    torch.float64: 'float64',
    torch.float16: 'float16',
    torch.bfloat16: 'bfloat16',
    torch.int32: 'int32',
    torch.int64: 'int64',
}


def describe(argument: object) -> object:
    """The hashable type of one argument: what a specialisation of a kernel is keyed on."""
    if isinstance(argument, torch.Tensor):
        return KINDS[argument.dtype]
    if isinstance(argument, tuple):
        items = tuple(describe(item) for item in argument)
        return type(argument)(*items) if hasattr(argument, '_fields') else items
    return type(argument).__name__


def words(argument: object) -> Iterable[int]:
    """The argument as 64-bit words, in the order of the kernel's parameters."""
    if isinstance(argument, torch.Tensor):
        return (argument.data_ptr(),)
    if isinstance(argument, tuple):
        return tuple(word for item in argument for word in words(item))
    if isinstance(argument, float):
        return struct.unpack('q', struct.pack('d', argument))
    return () if argument is None else (int(argument),)
