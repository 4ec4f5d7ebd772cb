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
from pygfuse.conv._fallback import is_observed, why_not_maps
from pygfuse.conv._spec import REDUCTIONS
from pygfuse.graph.adjacency import FLOWS
from pygfuse.hag.attach import attached
from pygfuse.ops import autocast
from pygfuse.ops.eager import PLAIN, is_intercepted

# methods that a class, or somebody from outside, may have replaced
_methods_of = operator.attrgetter(
    'message', 'aggregate', 'update', 'edge_update', 'message_and_aggregate', 'propagate', 'edge_updater'
)

Kind = tuple[tuple, tuple]


def kind_of(layer: Any, x: Any, adjacency: Any, given: dict[str, Any]) -> Kind | None:
    """What decides how a call runs, but for numbers of nodes and edges; None where that is not so little.

    Args:
        layer: The layer.
        x: Features, or a pair of them.
        adjacency: What the user passed as ``edge_index``.
        given: The other arguments by name.

    Returns:
        What is compared by identity, and what by value.
    """
    if type(adjacency) is not Tensor or adjacency.layout is not torch.strided:
        return None
    if (
        not nothing_is_said()
        or is_intercepted()
        or torch._C._len_torch_function_stack()
        or autocast.is_on_anywhere()
        or is_observed(layer)
    ):
        return None
    aggr, modules = layer.aggr, layer._modules
    if type(aggr) is not str or aggr not in REDUCTIONS or has_hooks(modules['aggr_module']):
        return None
    if why_not_maps(layer, layer.spec.maps) is not None or attached(adjacency) is not None:
        return None
    if type(x) in PLAIN:
        values = x, *given.values()
    elif type(x) is tuple and layer.flow == FLOWS[0]:
        values = *x, *given.values()
    else:
        return None
    shapes = [adjacency.dtype, adjacency.device, adjacency.dim(), len(values), *given]
    for value in values:
        if value is None:
            shapes.append(None)
        elif type(value) in PLAIN:
            # a look at one row, as some checks take, is at none where there is none
            first, *others = value.shape or (0,)
            shapes += value.dtype, value.device, others, first > 0
        else:
            return None
    kind = type(layer)
    return (kind, *_methods_of(kind), *modules.values(), *layer.__dict__.values()), tuple(shapes)


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
