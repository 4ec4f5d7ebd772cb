"""The network inside an EdgeConv as it takes few edges as they come."""

from __future__ import annotations

from torch import Tensor

from pygfuse._lib.backends import few_edge_networks_of
from pygfuse.conv._edge_mlp.network import Linear, Stage
from pygfuse.ops.few_edges.sums import TYPES
from pygfuse.program.activation import Activation
from pygfuse.program.networks_along_edges import FewEdgeNetwork


def few_edge_network_of(stages: list[Stage], x: Tensor, reduce: str, is_shared: bool) -> FewEdgeNetwork | None:
    """What few edges are taken through; None where they are taken as many are.

    Args:
        stages: Those of the layer.
        x: Features of sources.
        reduce: How values are reduced.
        is_shared: Whether sources and targets are the same nodes.
    """
    kernels = few_edge_networks_of(x.device)
    is_taken = all(isinstance(stage, (Linear, Activation)) for stage in stages)
    if kernels is None or x.dtype not in TYPES or not is_taken:
        return None
    first, *others = stages
    after = tuple(stage.module.weight.shape[0] if isinstance(stage, Linear) else stage for stage in others)
    biased = tuple(stage.module.bias is not None for stage in stages if isinstance(stage, Linear))
    hidden = first.module.weight.shape[0]
    network = FewEdgeNetwork(x.shape[-1], hidden, after, reduce, x.dtype, is_shared, biased)
    return network if kernels.is_taken(network) else None
