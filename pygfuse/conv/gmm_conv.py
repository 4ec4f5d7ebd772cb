"""The fused Gaussian mixture model operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from pygfuse.conv._layer import (
    REDUCTIONS,
    FusedConv,
    check_features,
    checked_edge_attr,
    nodes_of,
    why_not_reduce,
    why_not_reversed,
)
from pygfuse.ops.aggregate import Edges, aggregate
from pygfuse.program.library.gaussian import gaussian, separate_gaussians
from pygfuse.program.products import Product
from pygfuse.program.program import EdgeProgram

_EPSILON = 1e-15


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

    .. math::
        \mathbf{x}^{\prime}_i = \mathrm{aggr}_j \sum_{k=1}^K \mathbf{w}_k(\mathbf{e}_{ij}) \odot \mathbf{\Theta}_k
        \mathbf{x}_j, \quad \mathbf{w}_k(\mathbf{e}) = \exp \left( -\frac{1}{2} {(\mathbf{e} - \mu_k)}^{\top}
        \Sigma_k^{-1} (\mathbf{e} - \mu_k) \right)

    The Gaussians are the heads of one walk; their sum is taken once a node. As in PyG's code, the Gaussians are summed.
    With separate Gaussians (one of its own for each pair of an input and an output) the inputs are the heads; the walk
    then keeps a row of inputs times outputs for each node, and nothing of edges.

    Args:
        in_channels, out_channels, dim, kernel_size, separate_gaussians, aggr, root_weight, bias: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> import torch
        >>> conv = GMMConv(16, 8, dim=2, kernel_size=3)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.rand(3, 2)).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': OptPairTensor, 'edge_attr': OptTensor}

    def why_not(self) -> str | None:
        reason = super().why_not() or why_not_reduce(self.aggr, ('sum', 'mean'))
        if reason is None and self.separate_gaussians and self.kernel_size * self.dim > _MOST_SEPARATE:
            return f'separate Gaussians of kernel_size * dim > {_MOST_SEPARATE} have no fused form'
        if reason is None and not hasattr(self, 'root'):
            return 'root_weight=False'
        return reason

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``GMMConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self._why_not_call(edge_index, pair, edge_attr, size)):
            return super().forward(x, edge_index, edge_attr, size)
        check_features(self, pair, shared=isinstance(x, Tensor))
        edges, graph = nodes_of(self, pair, edge_index, size)
        edge_attr = checked_edge_attr(edge_index, edge_attr, self.dim, edges, graph)
        if edge_attr is None:
            raise ValueError("Expected 'edge_attr' to be given, the pseudo-coordinates (got None)")
        gaussians = self._separate if self.separate_gaussians else self._shared
        out = gaussians(pair[0], edges, edge_attr)
        if pair[1] is not None and self.root is not None:
            out = out + self.root(pair[1])
        return out if self.bias is None else out + self.bias

    def _shared(self, x: Tensor, edges: Edges, edge_attr: Tensor) -> Tensor:
        """The Gaussians are heads; their sum is taken once a node."""
        factors = -0.5 / (_EPSILON + self.sigma.pow(2))
        operands: dict[str, Any] = {'x': x @ self.g}
        for d in range(self.dim):
            operands[f'pseudo_{d}'] = edge_attr[:, d : d + 1]
            operands[f'mu_{d}'] = self.mu[:, d].unsqueeze(0)
            operands[f'factor_{d}'] = factors[:, d].unsqueeze(0)
        program, reduce = _shared_program(self.dim), REDUCTIONS[self.aggr]
        with self.noted():
            return aggregate(program, edges, operands, self.kernel_size, self.out_channels, reduce).sum(dim=1)

    def _separate(self, x: Tensor, edges: Edges, edge_attr: Tensor) -> Tensor:
        """The inputs are heads, the outputs channels; the sum over inputs is taken once a node."""
        inputs, outputs = x.shape[1], self.out_channels
        factors = -0.5 / (_EPSILON + self.sigma.pow(2))
        coefficients = self.g.view(inputs, outputs, self.kernel_size)
        operands: dict[str, Any] = {'x': x}
        for d in range(self.dim):
            operands[f'pseudo_{d}'] = Product(edge_attr[:, d : d + 1], x.new_ones(1, inputs * outputs))
        for k in range(self.kernel_size):
            operands[f'g_{k}'] = coefficients[..., k].reshape(1, -1)
            for d in range(self.dim):
                operands[f'mu_{k}_{d}'] = self.mu[..., k, d].reshape(1, -1)
                operands[f'factor_{k}_{d}'] = factors[..., k, d].reshape(1, -1)
        program, reduce = _separate_program(self.kernel_size, self.dim), REDUCTIONS[self.aggr]
        with self.noted():
            return aggregate(program, edges, operands, inputs, outputs, reduce).sum(dim=1)

    def _why_not_call(
        self, adjacency: Any, pair: tuple[Tensor, Tensor | None], edge_attr: Tensor | None, size: Any
    ) -> str | None:
        reason = self.why_not_with(adjacency, pair, self.g, edge_attr=edge_attr)
        return reason or why_not_reversed(self.flow, pair, size)
