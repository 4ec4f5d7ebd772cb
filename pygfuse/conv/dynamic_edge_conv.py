"""The fused dynamic edge convolutional operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import PairTensor

from pygfuse.conv._points import clouds_of
from pygfuse.conv.edge_conv import EdgeConv
from pygfuse.ops.points.knn import check_k, neighbours_of


class DynamicEdgeConv(EdgeConv, torch_geometric.nn.DynamicEdgeConv):
    r"""`torch_geometric.nn.DynamicEdgeConv` without pyg-lib: `EdgeConv` on the graph of the nearest neighbours.

    From the `"Dynamic Graph CNN for Learning on Point Clouds" <https://arxiv.org/abs/1801.07829>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \underset{j \in \mathrm{kNN}(i)}{\mathrm{aggr}} \;
        h_{\mathbf{\Theta}}(\mathbf{x}_i \, \Vert \, \mathbf{x}_j - \mathbf{x}_i)

    The neighbours are those of `pygfuse.knn` in the space of the features, exact and with ties in the order of
    indices; a point is among its own ("Dynamic Graph CNN for Learning on Point Clouds", section 3). The edge function
    runs as in `pygfuse.conv.EdgeConv`, with its rule on ties: behind a second linear map the gradient of points at the
    same place is that of the first of them, where PyG divides it.

    Args:
        nn, k, aggr, num_workers: As in PyG; `num_workers` has no effect.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If `k` is not positive; in ``forward``, if `batch` is not sorted or an argument has another shape,
            type or device than expected.

    Example:
        >>> conv = DynamicEdgeConv(torch.nn.Linear(6, 8), k=4)
        >>> conv(torch.randn(20, 3), torch.arange(2).repeat_interleave(10)).shape
        torch.Size([20, 8])
    """

    propagate_type: ClassVar = {'x': PairTensor}

    def __init__(self, nn: Callable, k: int, aggr: str = 'max', num_workers: int = 1, **kwargs: Any) -> None:
        check_k(k)
        # not PyG's constructor, which asks for pyg-lib
        MessagePassing.__init__(self, aggr=aggr, flow='source_to_target', **kwargs)
        self.nn = nn
        self.k = k
        self.num_workers = num_workers
        self.reset_parameters()

    def forward(
        self, x: Tensor | PairTensor, batch: Tensor | tuple[Tensor | None, Tensor | None] | None = None
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``DynamicEdgeConv.forward``."""
        points, queries, batches, names = clouds_of(x, batch)
        return super().forward(x, neighbours_of(points, queries, self.k, *batches, names))

    # those of its own: PyG's two classes are no relatives
    reset_parameters = torch_geometric.nn.DynamicEdgeConv.reset_parameters
    __repr__ = torch_geometric.nn.DynamicEdgeConv.__repr__
