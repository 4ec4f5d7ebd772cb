"""The fused spline-based convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn import Parameter, UninitializedParameter
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.typing import OptPairTensor, OptTensor
from torch_geometric.utils.repeat import repeat

from pygfuse.conv._layer.checks import Inputs, NodePair
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.relations import LOOKED_AT, why_no_relations
from pygfuse.conv._layer.spec import EXTREMES, EdgeFeatures, Spec
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.listed import savable
from pygfuse.ops.nodes.large_sums import added_to
from pygfuse.ops.nodes.linear import apply_linear
from pygfuse.ops.typed.spline_product import SplineEdges, spline_product
from pygfuse.ops.typed.spline_rows import SplineRows, splines_of
from pygfuse.ops.typed.splines import DEGREES, Splines
from pygfuse.ops.within_torch import autocast
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.edge_rows import EDGE_ROWS


class WithoutPygLib(torch_geometric.nn.SplineConv):
    """PyG's class, whose constructor and message ask for pyg-lib, without it."""

    def __init__(
        self, in_channels: int | tuple[int, int], out_channels: int, dim: int, kernel_size: int | list[int],
        is_open_spline: bool = True, degree: int = 1, aggr: str = 'mean', root_weight: bool = True, bias: bool = True,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if degree not in DEGREES:
            raise ValueError(f"Expected 'degree' to be one of {DEGREES} (got {degree!r})")
        MessagePassing.__init__(self, aggr=aggr, **kwargs)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.dim, self.degree, self.root_weight = dim, degree, root_weight
        self.register_buffer('kernel_size', torch.tensor(repeat(kernel_size, dim), dtype=torch.long))
        self.register_buffer('is_open_spline', torch.tensor(repeat(is_open_spline, dim), dtype=torch.uint8))
        of_sources, of_targets = in_channels if isinstance(in_channels, tuple) else (in_channels, in_channels)
        self.K = int(self.kernel_size.prod())
        if of_sources > 0:
            self.weight = Parameter(torch.empty(self.K, of_sources, out_channels))
        else:
            self.weight = UninitializedParameter()
            self._hook = self.register_forward_pre_hook(self.initialize_parameters)
        if root_weight:
            self.lin = Linear(of_targets, out_channels, bias=False, weight_initializer='uniform')
        self.register_parameter('bias', Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """The features of a neighbour, times the matrix that the splines give for the edge."""
        weight = self.weight
        # as operators of pyg-lib, which have no narrow form
        with autocast.off(x_j.device):
            coefficients, index = self.splines().coefficients(edge_attr.to(weight.dtype))
            edges = SplineEdges(SplineRows.of(index, self.K), None, None, len(x_j))
            return spline_product(x_j.to(weight.dtype), weight, coefficients, edges)

    def splines(self) -> Splines:
        """The splines of the kernel."""
        return Splines(tuple(self.kernel_size.tolist()), tuple(map(bool, self.is_open_spline.tolist())), self.degree)


class SplineConv(FusedConv, WithoutPygLib):
    r"""`torch_geometric.nn.SplineConv` without pyg-lib: the same parameters, options and numbers.

    From the `"SplineCNN: Fast Geometric Deep Learning with Continuous B-Spline Kernels"
    <https://arxiv.org/abs/1711.08920>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_{\textrm{root}} \mathbf{x}_i + \underset{j \in \mathcal{N}(i)}{\mathrm{aggr}}
        \; \mathbf{x}_j \sum_{\mathbf{p}} B_{\mathbf{p}}(\mathbf{e}_{ij}) \mathbf{W}_{\mathbf{p}}

    The splines that are not zero on an edge, ``(degree + 1) ** dim``, are ordered by the weight that they multiply,
    once for coordinates that stay the same; products with a weight then add to the targets, block by block. For sums
    and means nothing of edges is in memory but their coefficients and this order; extremes make a row of outputs for
    each edge.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, dim, kernel_size, is_open_spline, degree, aggr, root_weight, bias: As in PyG.

    Shapes and errors are those of `FusedConv`; coordinates that are no numbers or below 0, and a degree other than 1, 2
    or 3, raise a ValueError.

    Example:
        >>> conv = SplineConv(16, 8, dim=2, kernel_size=5)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.rand(3, 2)).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_attr': OptTensor}
    spec = Spec(
        EDGE_ROWS,
        edge=EdgeFeatures('dim', required=True),
        in_channels='in_channels',
        parameter='weight',
        saves_rows=True,
        node_dims=(-2, 0),
    )

    def forward(self, x: Any, edge_index: Any, edge_attr: OptTensor = None, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``SplineConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr, size=size)

    def prepare(self) -> tuple[()]:
        return LOOKED_AT

    def why_not_call(self, inputs: Inputs) -> str | None:
        return why_no_relations()

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        x = inputs.x[0][:] if is_deferring() else inputs.x[0]
        graph = edges.graph()
        coefficients, rows = splines_of(graph, self.edge_input(inputs, edges).values, self.splines())
        ends = graph.ends()
        sources, targets = ends[1 - graph.target_row], ends[graph.target_row]
        given = None if edges.token is None else savable(edges.token)
        if self.reduction in EXTREMES:
            of_edges = SplineEdges(rows, sources, None, len(sources), given)
            values = spline_product(x, self.weight, coefficients, of_edges)
            return aggregate(EDGE_ROWS, edges, {'x': values}, 1, self.out_channels, self.reduction, flat=True), None
        along = SplineEdges(rows, sources, targets, edges.num_targets, given)
        out = spline_product(x, self.weight, coefficients, along)
        if self.reduction == 'mean':
            out = out / graph.degree.clamp(min=1).to(out.dtype).unsqueeze(1)
        return out, None

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        if x[1] is not None and self.root_weight:
            out = added_to(out, apply_linear(self.lin, x[1]))
        return self.with_bias(out)
