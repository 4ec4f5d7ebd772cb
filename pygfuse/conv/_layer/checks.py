"""Checks of a layer's arguments before any kernel reads them: errors name the argument, what came and what was
expected."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pygfuse.graph.adjacency import values_of
from pygfuse.ops import Edges
from pygfuse.ops.within_torch import autocast

NodePair = tuple[Tensor, Tensor | None]


class Inputs(NamedTuple):
    """The arguments of a layer's forward.

    Attributes:
        x: Features of sources and of targets; the second may be missing.
        shared: Whether both are the one tensor that the user passed.
        adjacency: What the user passed as ``edge_index``.
        edge: Features or weights of edges, or None.
        size: PyG's `size`.
        with_weights: Whether the weights of edges are to be returned.
        others: Further tensors by name.
        is_normalised: Whether the weights of edges are those of a normalised adjacency.
        is_known: Whether the call is like the one before, see `pygfuse.conv._layer.repeated`.
        edge_type: The relation of each edge, or None.
    """

    x: NodePair
    shared: bool
    adjacency: Any
    edge: Tensor | None = None
    size: tuple[int | None, int | None] | None = None
    with_weights: bool = False
    others: Mapping[str, Tensor] = {}
    is_normalised: bool = False
    is_known: bool = False
    edge_type: Tensor | None = None


def is_edge_index(adjacency: Any) -> bool:
    """Whether the adjacency is a plain ``edge_index`` or an ``EdgeIndex``: a tensor of two rows."""
    return isinstance(adjacency, Tensor) and not is_torch_sparse_tensor(adjacency)


def is_sparse_tensor(adjacency: Any) -> bool:
    """Whether the adjacency is a ``torch_sparse.SparseTensor``."""
    return isinstance(adjacency, SparseTensor)


def pair_of(x: Any) -> NodePair:
    """Features of sources and of targets: one tensor for both, or PyG's pair.

    Raises:
        ValueError: If `x` is neither.
    """
    if isinstance(x, Tensor):
        return x, x
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        got = f'{len(x)} of them' if isinstance(x, (tuple, list)) else type(x).__name__
        raise ValueError(f"Expected 'x' to be a tensor of shape [nodes, features] or a pair of them (got {got})")
    # to PyG a pair is two tensors: a map of both is called for each, and may count its calls
    return x[0], x[1].view_as(x[1]) if x[1] is x[0] and isinstance(x[1], Tensor) else x[1]


def is_first_rows(x: NodePair) -> bool:
    """Whether targets are the first of the sources and their features a view of them: PyG's ``(x, x[:n])``.

    A linear map of both then need not be taken twice. Where gradients are wanted, the view has to be one for autograd,
    too.
    """
    first, second = x
    if type(first) is not Tensor or type(second) is not Tensor or torch.compiler.is_compiling():
        return False
    is_same_memory = first.data_ptr() == second.data_ptr() and first.stride() == second.stride()
    if not is_same_memory or first.dtype != second.dtype or second.shape[0] > first.shape[0]:
        return False
    if first.shape[1:] != second.shape[1:]:
        return False
    if not first.requires_grad and not second.requires_grad:
        return True
    # the gradient then does not pass the view, at which nobody may wait for it
    is_waited_for = second.retains_grad or second._backward_hooks
    return first.requires_grad and second.requires_grad and second._base is first and not is_waited_for


def check_tensors(given: Mapping[str, Any]) -> None:
    """Raises a ValueError that names the first argument that is no tensor."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"Expected '{name}' to be a tensor (got {type(value).__name__})")


def check_adjacency(adjacency: Any) -> None:
    """Raises a ValueError if PyG would not take this for an adjacency."""
    if not isinstance(adjacency, Tensor) and not is_sparse_tensor(adjacency):
        raise ValueError(
            f"Expected 'edge_index' to be a tensor of shape [2, edges] or a sparse tensor (got "
            f'{type(adjacency).__name__})'
        )


def check_devices(adjacency: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raises a ValueError that names the first tensor that is on another device than the features."""
    first = next(iter(tensors.values())).device
    devices = {name: tensor.device for name, tensor in tensors.items()}
    devices['edge_index'] = adjacency.device() if is_sparse_tensor(adjacency) else adjacency.device
    for name, device in devices.items():
        if device != first:
            raise ValueError(f"Expected '{name}' to be on the device of 'x', {first} (got {device})")


def check_features(conv: Module, said_by: str, x: NodePair, shared: bool) -> None:
    """Raises a ValueError that names `x` if features have another shape or width than the layer expects.

    Args:
        conv: The layer.
        said_by: Its attribute that says the width, or those of both sides; -1 for any.
        x: Features of both sides.
        shared: Whether both are one tensor.
    """
    expected = getattr(conv, said_by)
    for i, features in enumerate(x[:1] if shared else x):
        if features is None:
            continue
        name = 'x' if shared else f'x[{i}]'
        width = expected if isinstance(expected, int) else expected[0 if shared else i]
        if features.dim() != 2:
            raise ValueError(
                f"Expected '{name}' to be two-dimensional, [nodes, features] (got shape {list(features.shape)})"
            )
        fits = width in (-1, features.shape[1]) or (said_by == 'in_channels' and _may_take(conv, features.shape[1]))
        if not fits:
            raise ValueError(
                f"Expected '{name}' to have {width} features, as {said_by} says (got shape {list(features.shape)})"
            )


def _may_take(conv: Module, width: int) -> bool:
    """Whether a linear map of nodes was replaced by one that takes, for all one knows, so many features."""
    spec = getattr(conv, 'spec', None)
    of_edges = None if spec is None else getattr(spec.edge, 'map', None)
    found = (child for name, child in conv.named_children() if name.startswith('lin') and name != of_edges)
    maps = itertools.chain.from_iterable(child if isinstance(child, ModuleList) else (child,) for child in found)
    return any(getattr(child, 'in_channels', getattr(child, 'in_features', width)) == width for child in maps)


def check_rows(
    rows: Sequence[int | None], size: tuple[int | None, int | None] | None, adjacency: Any
) -> tuple[int, int]:
    """The numbers of nodes that rows 0 and 1 of an ``edge_index`` name.

    Args:
        rows: Numbers of rows of ``x[0]`` and ``x[1]``; None where there are no features.
        size: The user's `size`.
        adjacency: The adjacency; a sparse one has sizes of its own and PyG ignores `size`.

    Raises:
        ValueError: If `size` contradicts the features.
    """
    given = (None, None)
    if not is_edge_index(adjacency):
        given = (adjacency.size(1), adjacency.size(0))
    elif isinstance(adjacency, EdgeIndex):
        given = (adjacency.sparse_size(0), adjacency.sparse_size(1))
    elif size is not None:
        given = (size[0], size[1])
    for i, (have, want) in enumerate(zip(rows, given, strict=True)):
        if have is not None and want is not None and have != want:
            said_by = 'size' if is_edge_index(adjacency) and not isinstance(adjacency, EdgeIndex) else 'edge_index'
            raise ValueError(f"Expected 'x[{i}]' to have {want} rows, as '{said_by}' says (got {have})")
    first = rows[0] if rows[0] is not None else given[0]
    second = rows[1] if rows[1] is not None else given[1]
    return first, first if second is None else second


def edge_values(adjacency: Any) -> Tensor | None:
    """The values of a sparse adjacency where PyG takes them for edge features: one row an edge, else None."""
    values = values_of(adjacency)
    return values if values is not None and values.dim() > 1 else None


def checked_edge_attr(adjacency: Any, edge_attr: Tensor | None, width: int, edges: Edges) -> Tensor | None:
    """Edge features as ``[edges, D]``: the argument, else the values of a sparse adjacency, else None.

    Args:
        adjacency: What the user passed.
        edge_attr: What the user passed.
        width: D; -1 for any.
        edges: The edges of the call.

    Raises:
        ValueError: If there is not one row for each edge, or rows have another width.
    """
    edge_attr = edge_values(adjacency) if edge_attr is None else edge_attr
    if edge_attr is None:
        return None
    edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
    width = edge_attr.shape[-1] if width == -1 else width
    if edge_attr.dim() != 2 or tuple(edge_attr.shape) != (edges.num_user_edges, width):
        raise ValueError(
            f"Expected 'edge_attr' of shape [{edges.num_user_edges}, {width}], a row for each edge "
            f'(got {list(edge_attr.shape)})'
        )
    return edge_attr


def checked_edge_weight(edge_weight: Tensor | None, edges: Edges) -> Tensor | None:
    """Edge weights as ``[edges, 1]``, or None.

    Raises:
        ValueError: If there is not one for each edge.
    """
    if edge_weight is None:
        return None
    num_edges = edges.num_user_edges
    if edge_weight.numel() != num_edges or edge_weight.shape[:1] != (num_edges,):
        raise ValueError(
            f"Expected 'edge_weight' to hold one number for each of {num_edges} edges (got shape "
            f'{list(edge_weight.shape)})'
        )
    return edge_weight.view(-1, 1)


def as_features(weight: Tensor, like: Tensor) -> Tensor:
    """Edge weights in the type of features; under autocast in their own, as layers there mix types."""
    return weight if autocast.is_on(like.device) and weight.is_floating_point() else weight.to(like.dtype)
