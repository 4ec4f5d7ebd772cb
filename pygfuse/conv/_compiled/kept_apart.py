"""What a layer hands to its messages, kept apart from what it writes into afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.callers import kept_from_callers
from pygfuse.compiler.capture.writes_in_code import writes_into_given


def kept_apart(conv: Any, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of ``propagate`` for a layer whose code, or that around its call, may write into them before
    backward reads them.

    Walks save rows of nodes, where PyG saves what its operators made of gathered ones.

    Args:
        conv: The layer.
        kwargs: The arguments.

    Returns:
        The same, or copies of floating tensors.
    """
    if not torch.is_grad_enabled():
        return kwargs
    if not writes_into_given(conv.plain):
        return kept_from_callers(kwargs)
    return {name: _copied(item) for name, item in kwargs.items()}


def as_handed(of_update: dict[str, Any], given: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``update`` with what `propagate` was handed in place of copies: it writes into these.

    Args:
        of_update: The arguments.
        given, kwargs: What `kept_apart` gave, of what.
    """
    if given is kwargs:
        return of_update
    are_copies = {name: name in given and value is given[name] for name, value in of_update.items()}
    return {name: kwargs[name] if are_copies[name] else value for name, value in of_update.items()}


def _copied(item: Any) -> Any:
    if isinstance(item, (tuple, list)):
        return type(item)([_copied(part) for part in item]) if type(item) in (tuple, list) else item
    is_read = isinstance(item, Tensor) and item.layout is torch.strided and item.is_floating_point()
    return item.clone() if is_read else item
