"""Calls of a layer that are like the one before: what was found out of that one holds for them.

Looking at the arguments and at the layer takes longer than a small graph's sums. What the looking depends on is little,
where tensors are plain ones and nothing is said by a ``with`` block, and is compared by identity.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.hooks import has_hooks
from pygfuse._lib.modes import nothing_is_said
from pygfuse.conv._layer.fallback import is_observed, why_not_maps
from pygfuse.conv._layer.spec import REDUCTIONS
from pygfuse.graph.adjacency import FLOWS
from pygfuse.hag.attach import attached
from pygfuse.ops.within_torch.intercepted import PLAIN, is_transformed

# methods that a class, or somebody from outside, may have replaced
_methods_of = operator.attrgetter(
    'message', 'aggregate', 'update', 'edge_update', 'message_and_aggregate', 'propagate', 'edge_updater'
)

Kind = tuple[tuple, list]


def kind_of(
    layer: Any, x: Any, adjacency: Any, given: dict[str, Any], of_prepared: tuple[tuple, tuple] = ((), ())
) -> Kind | None:
    """What decides how a call runs, but for numbers of nodes and edges; None where that is not so little.

    Nobody asks while torch compiles.

    Args:
        layer: The layer.
        x: Features, or a pair of them.
        adjacency: What the user passed as ``edge_index``.
        given: The other arguments by name.
        of_prepared: What decides of it in what the layer read of itself, by identity and by value.

    Returns:
        What is compared by identity, and what by value.
    """
    if not is_plain_call(layer, adjacency):
        return None
    aggr, modules = layer.aggr, layer._modules
    if type(aggr) is not str or aggr not in REDUCTIONS or has_hooks(modules['aggr_module']):
        return None
    maps = layer.spec.maps
    if (maps and why_not_maps(layer, maps) is not None) or attached(adjacency) is not None:
        return None
    if type(x) in PLAIN:
        values = x, *given.values()
    elif type(x) is tuple and layer.flow == FLOWS[0]:
        values = *x, *given.values()
    else:
        return None
    shapes = [adjacency.dtype, adjacency.device, adjacency.dim(), len(values), *given, *of_prepared[1]]
    for value in values:
        if type(value) in PLAIN:
            shapes += shape_of_rows(value)
        elif value is None:
            shapes.append(None)
        else:
            return None
    return (*of_prepared[0], *identities_of(layer)), shapes


def is_plain_call(layer: Any, adjacency: Any) -> bool:
    """Whether a layer of any class is given an ``edge_index`` and nothing around the call decides how it runs."""
    if type(adjacency) is not Tensor or adjacency.layout is not torch.strided:
        return False
    return is_plain_place() and not is_observed(layer)


def is_plain_place() -> bool:
    """Whether nothing around a call decides how it runs."""
    return not (
        not nothing_is_said()
        or is_transformed()
        or torch._C._len_torch_function_stack()
        or torch._C._is_any_autocast_enabled()
    )


def identities_of(layer: Any) -> tuple:
    """What a layer and its class hold, which decides how it runs.

    Tensors that are no parameters do not: what a message reads is guarded, and what somebody stores in each call would
    live on, with all that autograd keeps for it.
    """
    kind = type(layer)
    # a list first: another thread may write to the layer
    held = [value for value in [*layer.__dict__.values()] if type(value) is not Tensor]
    return (kind, *_methods_of(kind), *layer._modules.values(), *held)


def shape_of_rows(tensor: Tensor) -> tuple:
    """What a tensor is but for its number of rows."""
    # a look at one row, as some checks take, is at none where there is none
    shape = tensor.shape
    return tensor.dtype, tensor.device, shape[1:], len(shape) > 0 and shape[0] > 0


def is_like(kind: Kind, other: Kind | None) -> bool:
    """Whether two calls run alike.

    Example:
        >>> is_like(((int, None), (2,)), ((int, None), (2,))), is_like(((int, None), (2,)), ((int, 1), (2,)))
        (True, False)
    """
    if other is None:
        return False
    ours, theirs = kind[0], other[0]
    return kind[1] == other[1] and len(ours) == len(theirs) and all(map(operator.is_, ours, theirs))
