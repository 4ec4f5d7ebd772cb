"""The fused GravNet operator."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.typing import OptPairTensor, PairTensor  # noqa: F401 (PyG reads the types of `propagate` here)

from pygfuse.conv._compiled import compiled_class
from pygfuse.conv._layer.checks import check_features
from pygfuse.conv._points import clouds_of
from pygfuse.ops.points.knn import check_k, neighbours_of


@compiled_class
class GravNetConv(torch_geometric.nn.GravNetConv):
    r"""`torch_geometric.nn.GravNetConv` without pyg-lib: means and maxima of the nearest neighbours, by their distance.

    From the `"Learning Representations of Irregular Particle-detector Geometry with Distance-weighted Graph Networks"
    <https://arxiv.org/abs/1902.07987>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \left[ \underset{j \in \mathrm{kNN}(i)}
        {\mathrm{mean}} \; w_{ij} \mathbf{h}_j \, \Vert \, \underset{j \in \mathrm{kNN}(i)}{\max} \; w_{ij}
        \mathbf{h}_j \right], \quad w_{ij} = \exp \left( -10 \, \Vert \mathbf{s}_j - \mathbf{s}_i \Vert^2 \right)

    The neighbours are those of `pygfuse.knn` in the space of :math:`\mathbf{s} = \mathbf{W}_s \mathbf{x}`, exact and
    with ties in the order of indices; a point is among its own. The message, distances included, is
    [compiled](../guides/compile.md): nothing of an edge is in memory but its two ends.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, space_dimensions, propagate_dimensions, k, num_workers: As in PyG; `num_workers` has no effect.

    Shapes:
        As in PyG; a pair of features makes a bipartite graph, from points to queries.

    Raises:
        ValueError: If `k` is not positive; in ``forward``, if `batch` is not sorted or an argument has another shape,
            type or device than expected.

    Example:
        >>> conv = GravNetConv(8, 16, space_dimensions=4, propagate_dimensions=22, k=4)
        >>> conv(torch.randn(20, 8), torch.arange(2).repeat_interleave(10)).shape
        torch.Size([20, 16])
    """

    def __init__(
        self, in_channels: int, out_channels: int, space_dimensions: int, propagate_dimensions: int, k: int,
        num_workers: int | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        check_k(k)
        # not PyG's constructor, which asks for pyg-lib
        MessagePassing.__init__(self, aggr=['mean', 'max'], flow='source_to_target', **kwargs)
        if num_workers is not None:
            warnings.warn("'num_workers' of GravNetConv has no effect", stacklevel=2)
        self.in_channels, self.out_channels, self.k = in_channels, out_channels, k
        self.lin_s = Linear(in_channels, space_dimensions)
        self.lin_h = Linear(in_channels, propagate_dimensions)
        self.lin_out1 = Linear(in_channels, out_channels, bias=False)
        self.lin_out2 = Linear(2 * propagate_dimensions, out_channels)
        self.reset_parameters()

    def forward(
        self, x: Tensor | PairTensor, batch: Tensor | tuple[Tensor | None, Tensor | None] | None = None
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GravNetConv.forward``."""
        points, queries, batches, names = clouds_of(x, batch)
        check_features(self, 'in_channels', (points, queries), isinstance(x, Tensor))
        h, s = self.lin_h(points), self.lin_s(points)
        of_queries = s if queries is points else self.lin_s(queries)
        edge_index = neighbours_of(s, of_queries, self.k, *batches, names)
        # propagate_type: (h: OptPairTensor, s: PairTensor)
        out = self.propagate(edge_index, h=(h, None), s=(s, of_queries), size=(len(s), len(of_queries)))
        return self.lin_out1(queries) + self.lin_out2(out)

    # PyG reads there what a class takes
    forward.__signature__ = inspect.signature(torch_geometric.nn.GravNetConv.forward)

    # not that which PyG writes for its class, which takes other arguments
    propagate = MessagePassing.propagate

    def message(self, h_j: Tensor, s_i: Tensor, s_j: Tensor) -> Tensor:
        """The features of a neighbour, times a Gaussian of its distance."""
        weight = torch.exp(-10.0 * (s_j - s_i).pow(2).sum(-1))
        return h_j * weight.unsqueeze(1)
