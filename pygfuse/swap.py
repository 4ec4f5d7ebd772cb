"""Swapping the convolutions of an existing model."""

from __future__ import annotations

import torch
import torch_geometric.nn

from pygfuse import conv
from pygfuse.conv._layer import FusedConv
from pygfuse.conv._scripting import turn_back

# PyG's class -> the fused class of the same name
FUSED_CLASSES: dict[type, type[FusedConv]] = {
    getattr(torch_geometric.nn, fused.__name__): fused for fused in (getattr(conv, name) for name in conv.__all__)
}
_PLAIN_CLASSES = {fused: plain for plain, fused in FUSED_CLASSES.items()}


def fuse(model: torch.nn.Module) -> torch.nn.Module:
    """Swaps every supported convolution of a model for its fused form, in place.

    Parameters, buffers, hooks and references that an optimizer holds stay as they are: only the layers' class changes.
    Layers of other classes, subclasses of PyG's included, are left alone; `report` says why.

    Args:
        model: Any module, for example a whole model or one layer.

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
    return _swap(model, FUSED_CLASSES)


def unfuse(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes `fuse`: every fused layer becomes one of PyG's again, in place.

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
    return _swap(model, _PLAIN_CLASSES)


def _swap(model: torch.nn.Module, classes: dict[type, type]) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"Expected 'model' to be a torch.nn.Module (got {type(model).__name__})")
    for module in model.modules():
        if isinstance(module, FusedConv):
            turn_back(module)
        if type(module) in classes:
            if isinstance(module, FusedConv):
                del module.note
            module.__class__ = classes[type(module)]
    return model
