"""Features of four and more dimensions, ``[batch, time, nodes, channels]``: those before the last two are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from pygfuse.compiler import Refused
from pygfuse.conv._compiled.call import names_read

# what compiled layers take as it is has a dimension before those of rows and channels, at most
_MOST_DIMENSIONS = 3


def leading_dimensions(conv: MessagePassing, kwargs: Mapping[str, Any]) -> torch.Size | None:
    """The dimensions before the last two that the arguments of a call have; None where these are one at most.

    Args:
        conv: The layer; only where its nodes are the last dimension but one can there be several.
        kwargs: What ``propagate`` was given.

    Example:
        >>> from torch_geometric.nn import SimpleConv
        >>> leading_dimensions(SimpleConv(), {'x': torch.ones(2, 3, 5, 8), 'edge_weight': torch.ones(9)})
        torch.Size([2, 3])
    """
    if conv.node_dim != -2 or not any(_has_several(part) for value in kwargs.values() for part in _parts(value)):
        return None
    try:
        of_nodes, _ = names_read(type(conv))
    except Refused:
        return None
    given = {name: _parts(value) for name, value in kwargs.items()}
    if not any(_has_several(part) for name in of_nodes for part in given.get(name, ())):
        # of edges any number of dimensions may be
        return None
    found = {part.shape[:-2] for parts in given.values() for part in parts if _has_several(part)}
    return found.pop() if len(found) == 1 else None


def as_one(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one dimension before the last two, ``[batch * time, nodes, channels]``."""
    return {name: _flat(value) for name, value in kwargs.items()}


def as_before(out: Any, leading: torch.Size) -> Any:
    """Results with several dimensions again."""
    if isinstance(out, tuple):
        return tuple(as_before(one, leading) for one in out)
    return out.unflatten(0, leading)


def _parts(value: Any) -> tuple[Any, ...]:
    """An argument, or features of sources and of targets."""
    return value if isinstance(value, tuple) else (value,)


def _flat(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_flat, value))
    return value.flatten(0, -3) if _has_several(value) else value


def _has_several(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > _MOST_DIMENSIONS
