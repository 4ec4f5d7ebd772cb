"""Symbols whose tensors may share memory: a write to one of them changes what the others hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING

# operators whose results may lie in the memory of what they are given
_VIEWS = ('reshape', 'permute', 'index')
# functions of torch whose results may, too
_FUNCTIONS = ('detach', 'contiguous')


def share(results: Iterable[Any], given: Iterable[Any], function: str) -> None:
    """Notes that the results of a function may share the memory of the symbols that it was given.

    Args:
        results: Its results.
        given: The symbols.
        function: Its name.
    """
    for result in results:
        if result.node.op in (*_VIEWS, 'expand') or function in _FUNCTIONS or result.is_view:
            together = list({id(one): one for symbol in (result, *given) for one in symbol.sharing}.values())
            for one in together:
                one.sharing = together


def shares_memory(out: Any, given: Any) -> bool:
    """Whether a tensor lies in the memory of one of those that it is computed of."""
    storages = {one.untyped_storage()._cdata for one in found_in(Tensor, given)}
    return isinstance(out, Tensor) and out.untyped_storage()._cdata in storages


def check_current(symbols: Iterable[Any]) -> None:
    """Raises `Refused` if what one of the symbols holds was changed by a write to another."""
    if any(symbol.is_changed for symbol in symbols):
        raise Refused('it reads a tensor after a write to another one that may share its memory')


def write(symbol: Any, result: Any) -> None:
    """Gives a symbol the value that was written into its tensor; what was captured of it before keeps that of then.

    Raises:
        Refused: If the tensor is of the caller and may not be written into, or the value cannot be written there.
    """
    if not torch.is_grad_enabled():
        # the gradient would be that of what was there before
        raise Refused('it writes into a tensor without gradients')
    given = [one for one in symbol.sharing if one.is_given and not one.is_copy]
    is_other = (result.node.shape, result.node.dtype) != (symbol.node.shape, symbol.node.dtype)
    is_callers = bool(given) and not (all(one is symbol for one in given) and _may_write(symbol))
    if is_callers or symbol.node.op == 'expand' or is_other:
        raise Refused('it writes into a tensor that something else may share')
    for other in symbol.sharing:
        other.is_changed = other is not symbol
    symbol.sharing = [symbol]
    symbol.node, symbol.constant = result.node, result.constant


def _may_write(symbol: Any) -> bool:
    remaking = REMAKING.get()
    return remaking is not None and remaking.written.may_write(symbol)
