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
from pygfuse.ops.sparse_features import SparseFeatures
from pygfuse.ops.within_torch.intercepted import PLAIN, is_transformed

# methods that a class, or somebody from outside, may have replaced
_methods_of = operator.attrgetter(
    'message', 'aggregate', 'update', 'edge_update', 'message_and_aggregate', 'propagate', 'edge_updater'
)

# asked in each call
_num_functions, _is_autocast = torch._C._len_torch_function_stack, torch._C._is_any_autocast_enabled
# classes of features
_OF_NODES = {*PLAIN, SparseFeatures}

Kind = tuple[tuple, list]


def kind_of(layer: Any, x: Any, adjacency: Any, given: dict[str, Any], prepared: Any = None) -> Kind | None:
    """What decides how a call runs, but for numbers of nodes and edges; None where that is not so little.

    Nobody asks while torch compiles.

    Args:
        layer: The layer.
        x: Features, or a pair of them.
        adjacency: What the user passed as ``edge_index``.
        given: The other arguments by name.
        prepared: What the layer read of itself.

    Returns:
        What is compared by identity, and what by value.
    """
    if not is_plain_call(layer, adjacency) or not _is_plain_layer(layer):
        return None
    of_prepared = layer.kind_of_prepared(prepared)
    shapes = None if of_prepared is None else _shapes_of(layer, x, adjacency, given, of_prepared[1])
    return None if shapes is None else ((*of_prepared[0], *identities_of(layer)), shapes)


def is_of_kind(kind: Kind, layer: Any, x: Any, adjacency: Any, given: dict[str, Any], prepared: Any = None) -> bool:
    """Whether a call is of a kind, found in less time than ``is_like(kind_of(layer, ...), kind)``.

    The layer's maps are not looked at: whoever does not read them asks for these (`pygfuse.conv._layer.fallback`).

    Args:
        kind: The kind.
        layer, x, adjacency, given, prepared: As of `kind_of`.
    """
    if not is_plain_call(layer, adjacency) or has_hooks(layer._modules['aggr_module']):
        return False
    of_prepared = layer.kind_of_prepared(prepared)
    if of_prepared is None:
        return False
    identities, shapes = kind
    if _shapes_of(layer, x, adjacency, given, of_prepared[1]) != shapes:
        return False
    own = type(layer)
    ours = [*of_prepared[0], own, *_methods_of(own), *layer._modules.values(), *layer.__dict__.values()]
    if len(ours) == len(identities) and all(map(operator.is_, ours, identities)):
        return True
    # tensors that the layer holds are none of what decides
    return is_like(kind_of(layer, x, adjacency, given, prepared), kind)


def _is_plain_layer(layer: Any) -> bool:
    """Whether a layer reduces as its class does, and its maps are nothing else."""
    aggr = layer.aggr
    if type(aggr) is not str or aggr not in REDUCTIONS or has_hooks(layer._modules['aggr_module']):
        return False
    return why_not_maps(layer, layer.spec.maps) is None


def _shapes_of(layer: Any, x: Any, adjacency: Tensor, given: dict[str, Any], of_prepared: tuple) -> list | None:
    """What is compared by value; None where what decides how a call runs is not so little."""
    if type(x) in _OF_NODES:
        values = x, *given.values()
    elif type(x) is tuple and layer.flow == FLOWS[0]:
        values = *x, *given.values()
    else:
        return None
    if attached(adjacency) is not None:
        return None
    shapes = [adjacency.dtype, adjacency.device, adjacency.dim(), len(values), *given, *of_prepared]
    for value in values:
        if type(value) in PLAIN:
            shapes += shape_of_rows(value)
        elif value is None:
            shapes.append(None)
        elif type(value) is SparseFeatures:
            shapes += SparseFeatures, *shape_of_rows(value)
        else:
            return None
    return shapes


def is_plain_call(layer: Any, adjacency: Any) -> bool:
    """Whether a layer of any class is given an ``edge_index`` and nothing around the call decides how it runs."""
    if type(adjacency) is not Tensor or adjacency.layout is not torch.strided:
        return False
    return is_plain_place() and not is_observed(layer)


def is_plain_place() -> bool:
    """Whether nothing around a call decides how it runs."""
    return nothing_is_said() and not (is_transformed() or _num_functions() or _is_autocast())


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


def is_like(kind: Kind | None, other: Kind | None) -> bool:
    """Whether two calls run alike.

    Example:
        >>> is_like(((int, None), (2,)), ((int, None), (2,))), is_like(((int, None), (2,)), ((int, 1), (2,)))
        (True, False)
    """
    if kind is None or other is None:
        return False
    ours, theirs = kind[0], other[0]
    return kind[1] == other[1] and len(ours) == len(theirs) and all(map(operator.is_, ours, theirs))
