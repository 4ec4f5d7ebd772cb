"""Swapping the convolutions of an existing model."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.nn

from pygfuse import conv
from pygfuse.conv import _fallback as fallback
from pygfuse.conv._compiled import CompiledConv, compiled_class
from pygfuse.conv._layer import FusedConv
from pygfuse.conv._noted import Noted
from pygfuse.conv._scripting import turn_back

# PyG's class -> the fused class of the same name
FUSED_CLASSES: dict[type, type[FusedConv]] = {
    getattr(torch_geometric.nn, name): getattr(conv, name)
    for name in conv.__all__
    if issubclass(getattr(conv, name), torch_geometric.nn.MessagePassing) and name != FusedConv.__name__
}
_PLAIN_CLASSES = {fused: plain for plain, fused in FUSED_CLASSES.items()}


def fuse(model: torch.nn.Module, compile: bool = True) -> torch.nn.Module:
    """Swaps every convolution of a model for its fused form, in place.

    Parameters, buffers, hooks and references that an optimizer holds stay as they are: only the layers' class changes.
    Layers of classes without a written form, a user's own among them, are compiled (`compile`).

    Args:
        model: Any module, for example a whole model or one layer.
        compile: Whether to compile layers for which no program is written, or to leave them alone.

    Returns:
        The same model.

    Raises:
        TypeError: If `model` is no module.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> model = fuse(pyg.GATConv(16, 8))
        >>> model
        GATConv(16, 8, heads=1)
    """
    return _swap(model, lambda module: _fused_class(module, compile))


def compile(conv: torch.nn.Module) -> torch.nn.Module:
    """Compiles a convolution, in place: its messages run as walks over the edges, forward and backward.

    What its ``message`` and ``aggregate`` compute is captured when the layer is first called. Its ``forward`` and
    ``update`` stay as they are. What has no fused form runs as before, and `report` says why.

    Args:
        conv: A layer of any class of `torch_geometric.nn.MessagePassing`. One with a written form gets that.

    Returns:
        The same layer.

    Raises:
        TypeError: If it is none.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> class Distance(pyg.MessagePassing):
        ...     def forward(self, x, edge_index):
        ...         return self.propagate(edge_index, x=x)
        ...
        ...     def message(self, x_i, x_j):
        ...         return (x_i - x_j).abs()
        >>> conv = compile(Distance())
        >>> conv(torch.tensor([[1.0], [5.0], [2.0]]), torch.tensor([[0, 1, 2], [1, 2, 1]])).tolist()
        [[0.0], [7.0], [3.0]]
        >>> conv.note.reason is None
        True
    """
    if not isinstance(conv, torch_geometric.nn.MessagePassing):
        raise TypeError(f"Expected 'conv' to be a MessagePassing layer (got {type(conv).__name__})")
    if not isinstance(conv, (FusedConv, CompiledConv)):
        conv.__class__ = _fused_class(conv, True)
    return conv


def unfuse(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes `fuse` and `compile`: every fused layer becomes one of its own class again, in place.

    Args:
        model: Any module.

    Returns:
        The same model.

    Raises:
        TypeError: If `model` is no module.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> model = pyg.Sequential('x, edge_index', [(pyg.GCNConv(8, 8), 'x, edge_index -> x')])
        >>> unfuse(fuse(model))[0].__class__ is pyg.GCNConv
        True
    """
    return _swap(model, _plain_class)


def _fused_class(module: torch.nn.Module, compile: bool) -> type:
    """The class that a module becomes; its own where there is none."""
    kind = type(module)
    if kind in FUSED_CLASSES and not (compile and fallback.why_not_reduce(module, FUSED_CLASSES[kind].spec.reductions)):
        return FUSED_CLASSES[kind]
    is_layer = isinstance(module, torch_geometric.nn.MessagePassing)
    if not compile or not is_layer or isinstance(module, (FusedConv, CompiledConv)):
        return kind
    return compiled_class(kind)


def _plain_class(module: torch.nn.Module) -> type:
    kind = type(module)
    return kind.plain if isinstance(module, CompiledConv) else _PLAIN_CLASSES.get(kind, kind)


def _swap(model: torch.nn.Module, class_of: Callable[[torch.nn.Module], type]) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"Expected 'model' to be a torch.nn.Module (got {type(model).__name__})")
    for module in model.modules():
        if isinstance(module, FusedConv):
            turn_back(module)
        kind = class_of(module)
        if kind is not type(module):
            if isinstance(module, CompiledConv):
                module.forget_plans()
            if isinstance(module, Noted):
                del module.note
            module.__class__ = kind
    return model
