"""Layers that aggregate features and then map them: which comes first does not matter to a sum."""

from __future__ import annotations

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from pygfuse._lib.hooks import why_not_linear
from pygfuse.conv._spec import REDUCTIONS, SUMS
from pygfuse.ops.sparse_features import SparseFeatures


def maps_first(conv: MessagePassing, linear: Module, x: Tensor) -> bool:
    """Whether a layer maps its features before it aggregates them: sparse ones, which an aggregation would make dense.

    Args:
        conv: A layer.
        linear: The map that PyG's layer applies to what it has aggregated.
        x: The features.
    """
    if not isinstance(x, SparseFeatures) or not isinstance(conv.aggr, str) or REDUCTIONS.get(conv.aggr) not in SUMS:
        return False
    return why_not_linear(linear, 'it') is None
