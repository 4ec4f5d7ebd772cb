"""The fused Gaussian mixture model operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.edges import EdgeInput
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import SUMS, EdgeFeatures, Spec
from pygfuse.ops import Edges
from pygfuse.ops.mapped_walk import Form, Part, Weights
from pygfuse.ops.nodes.large_sums import sum_of_heads, total
from pygfuse.ops.nodes.linear import apply_linear, apply_weight
from pygfuse.ops.points.gaussian_operands import factors_of, gaussians
from pygfuse.program.library.gaussian import gaussian, separate_gaussians
from pygfuse.program.products import OperandValue, Product
from pygfuse.program.program import SOURCE, TARGET, EdgeProgram

# the program names every mean and factor of separate Gaussians: more would take long to compile
_MOST_SEPARATE = 24


@torch.compiler.assume_constant_result
def _shared_program(dim: int) -> EdgeProgram:
    return gaussian(dim)


@torch.compiler.assume_constant_result
def _separate_program(kernels: int, dim: int) -> EdgeProgram:
    return separate_gaussians(kernels, dim)


class GMMConv(FusedConv, torch_geometric.nn.GMMConv):
    r"""`torch_geometric.nn.GMMConv`, fused: the same parameters and numbers.

    From the `"Geometric Deep Learning on Graphs and Manifolds using Mixture Model CNNs"
    <https://arxiv.org/abs/1611.08402>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \mathrm{aggr}_j \sum_{k=1}^K \mathbf{w}_k(\mathbf{e}_{ij}) \odot \mathbf{\Theta}_k
        \mathbf{x}_j, \quad \mathbf{w}_k(\mathbf{e}) = \exp \left( -\frac{1}{2} {(\mathbf{e} - \mu_k)}^{\top}
        \Sigma_k^{-1} (\mathbf{e} - \mu_k) \right)

    The Gaussians are the heads of one walk; their sum is taken once a node. As in PyG's code, the Gaussians are summed.
    With separate Gaussians (one of its own for each pair of an input and an output) the inputs are the heads; the walk
    then keeps a row of inputs times outputs for each node, and nothing of edges.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, dim, kernel_size, separate_gaussians, aggr, root_weight, bias: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> conv = GMMConv(16, 8, dim=2, kernel_size=3)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.rand(3, 2)).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_attr': OptTensor}
    spec = Spec(None, SUMS, edge=EdgeFeatures('dim', required=True), in_channels='in_channels', parameter='g')

    def forward(self, x: Any, edge_index: Any, edge_attr: OptTensor = None, size: Any = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GMMConv.forward``."""
        return self.fused(x, edge_index, edge_attr=edge_attr, size=size)

    def prepare(self) -> str | None:
        if self.separate_gaussians and self.kernel_size * self.dim > _MOST_SEPARATE:
            return f'separate Gaussians of kernel_size * dim > {_MOST_SEPARATE} have no fused form'
        return None if hasattr(self, 'root') else 'root_weight=False'

    def program(self, edge: EdgeInput | None) -> EdgeProgram:
        return _separate_program(self.kernel_size, self.dim) if self.separate_gaussians else _shared_program(self.dim)

    def operands(self, x: NodePair, edge: EdgeInput, edges: Edges) -> dict[str, OperandValue]:
        return (self._separate if self.separate_gaussians else self._shared)(x[0], edge.values)

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        features = given.get('edge_attr')
        if self.separate_gaussians or features is None:
            return None
        there = ['root'] if self.root is not None else []
        there += ['bias'] if self.has_bias() else []
        added = tuple(Part(TARGET if name == 'root' else None, place) for place, name in enumerate(there, 1))
        form = Form(
            *(_shared_program(self.dim), {'x': (Part(SOURCE, 0),)}, self.kernel_size, self.out_channels),
            derived=(gaussians(self.dim),), reduce=self.reduction, added=added, turned=(0,), sums_heads=True,
        )  # fmt: skip
        return FewWalk(form, ('g', *there), ('mu', 'sigma'), takes_features=True)

    def map_of_few(self, name: str) -> Weights | None:
        found = super().map_of_few(name)
        # of the parameters, one is a weight
        return found if found is None or name != 'g' else (found[1], None)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        of_targets = apply_linear(self.root, x[1]) if x[1] is not None and self.root is not None else None
        num_summed = x[0].shape[1] if self.separate_gaussians else self.kernel_size
        summed = sum_of_heads(out.view(out.shape[0], num_summed, self.out_channels))
        return self.with_bias(total(summed, of_targets))

    def _shared(self, x: Tensor, edge_attr: Tensor) -> dict[str, OperandValue]:
        """The Gaussians are heads; their sum is taken once a node."""
        mapped = apply_weight(x, self.g.t()).view(x.shape[0], self.kernel_size, self.out_channels)
        return {'x': mapped, **self._of_gaussians(edge_attr)}

    def _of_gaussians(self, edge_attr: Tensor) -> dict[str, Tensor]:
        """Features of edges, means and factors, dimension by dimension."""
        operands: dict[str, Tensor] = {}
        mu, factors = self.mu, factors_of(self.sigma)
        # taken apart at once: autograd fills a gradient for each slice of its own
        of_dims = edge_attr.split(1, dim=1), mu.t().unsqueeze(1).unbind(), factors.t().unsqueeze(1).unbind()
        for d, (pseudo, mean, factor) in enumerate(zip(*of_dims, strict=True)):
            operands |= {f'pseudo_{d}': pseudo, f'mu_{d}': mean, f'factor_{d}': factor}
        return operands

    def _separate(self, x: Tensor, edge_attr: Tensor) -> dict[str, OperandValue]:
        """The inputs are heads, the outputs channels; the sum over inputs is taken once a node."""
        inputs, outputs = x.shape[1], self.out_channels
        # read in PyG's order, as each may be computed from random numbers
        mu, factors = self.mu, factors_of(self.sigma)
        coefficients = self.g.view(inputs, outputs, self.kernel_size)
        operands: dict[str, OperandValue] = {'x': x}
        for d in range(self.dim):
            operands[f'pseudo_{d}'] = Product(edge_attr[:, d : d + 1], x.new_ones(1, inputs * outputs))
        for k in range(self.kernel_size):
            operands[f'g_{k}'] = coefficients[..., k].unsqueeze(0)
            for d in range(self.dim):
                operands[f'mu_{k}_{d}'] = mu[..., k, d].unsqueeze(0)
                operands[f'factor_{k}_{d}'] = factors[..., k, d].unsqueeze(0)
        return operands
