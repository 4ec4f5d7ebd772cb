"""Tensors that stand for graphs where only tensors can go."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.identity_cache import IdentityCache

_TOKEN_MARK = 0x7067667573650000

# a token keeps its graph alive; a copy of one finds it by its number
_tokens = IdentityCache(lambda token: 0)
_by_serial: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_serials = itertools.count()


def alive(reference: weakref.ref) -> Tensor | None:
    """The tensor that a reference is of, None if it died."""
    tensor = reference()
    if tensor is not None:
        # a tensor that only C++ held gets its Python object back
        tensor._fix_weakref()
    return tensor


def new_token(graph: Any) -> Tensor:
    """A tensor [2], int64, that stands for a graph and keeps it alive."""
    serial = next(_serials)
    token = torch.tensor([_TOKEN_MARK, serial])
    _by_serial[serial] = graph
    _tokens.keep(token, ('graph',), 0, graph)
    return token


def of_token(tensor: Any) -> Any | None:
    """The graph that a token, or a copy of one, stands for; None for anything else.

    Raises:
        ValueError: If only a copy of the token is left.
    """
    found = _tokens.get(tensor, ('graph',))
    if found is not None or type(tensor) is not Tensor:
        return found
    if tensor.dtype != torch.int64 or tensor.shape != (2,) or tensor.device.type != 'cpu':
        return None
    mark, serial = tensor.tolist()
    if mark != _TOKEN_MARK:
        return None
    found = _by_serial.get(serial)
    if found is None:
        raise ValueError('The graph that this token stood for is gone: keep the token itself, not a copy, alive')
    return found
