"""Towers of aggregated messages that are scaled by degrees: they are mapped first, and what the maps give is scaled.

PyG's ``PNAConv`` writes aggregated messages once for each scaler, beside the features, for each tower. A scaler is one
number a node, so ``W [s_1 a, s_2 a] = s_1 W_1 a + s_2 W_2 a``: what is scaled has the width of the result, and nothing
is written beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Sequential
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.nn import Linear
from torch_geometric.nn.aggr import DegreeScalerAggregation
from torch_geometric.typing import OptTensor
from torch_geometric.utils import degree

from pygfuse._lib.hooks import why_not_as_it_is, why_not_linear
from pygfuse.conv._compiled.prepared_edges import kept_with_edges
from pygfuse.conv._layer.fallback import are_fewer, is_observed, why_not_device
from pygfuse.graph.adjacency import target_row_of
from pygfuse.mapping.few_edges import fewest_of_towers

# numbers of a node by which aggregated messages are multiplied, of its degree and the mean of (the logarithm of) those
# of a training set; degrees are at least 1 where they divide
_SCALERS = {
    'identity': lambda degree, of_linear, of_log: torch.ones_like(degree),
    'amplification': lambda degree, of_linear, of_log: torch.log(degree + 1) / of_log,
    'attenuation': lambda degree, of_linear, of_log: of_log / torch.log(degree.clamp(min=1) + 1),
    'linear': lambda degree, of_linear, of_log: degree / of_linear,
    'inverse_linear': lambda degree, of_linear, of_log: of_linear / degree.clamp(min=1),
}


class ScaledTowers:
    """A mixin before `torch_geometric.nn.PNAConv`: scalers come after the first map of each tower.

    Features in two dimensions say that what is aggregated of them is not scaled yet. Where somebody watches or replaces
    what they would not see then, the class's own ``forward`` runs, whose features have three.
    """

    def forward(self, x: Tensor, edge_index: Any, edge_attr: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``PNAConv.forward``."""
        if not _may_scale_later(self, x, edge_index):
            return super().forward(x, edge_index, edge_attr)
        aggregated = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        num_scalers = len(self.aggr_module.scaler)
        if self.F_in + num_scalers * aggregated.shape[2] == self.post_nns[0][0].in_channels:
            factors = _factors(self.aggr_module, edge_index, self.flow, x)
            return self.lin(_through_towers(self, x, aggregated, factors))
        # PyG's operators ran, which know of no features in aggregations
        whole = torch.cat([_of_towers(self, x), aggregated], dim=-1)
        return self.lin(torch.cat([nn(rows) for nn, rows in zip(self.post_nns, whole.unbind(1), strict=True)], dim=1))

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: OptTensor) -> Tensor:
        """PyG's, of features ``[edges, in_channels]``, too."""
        if x_i.dim() == 2:
            x_i, x_j = _of_towers(self, x_i), _of_towers(self, x_j)
        return super().message(x_i, x_j, edge_attr)

    def aggregate(
        self, inputs: Tensor, index: Tensor, ptr: OptTensor = None, dim_size: int | None = None, x_i: OptTensor = None
    ) -> Tensor:
        """PyG's, not scaled where that comes later."""
        aggr = self.aggr_module if x_i is None or x_i.dim() != 2 else self.aggr_module.aggr
        return aggr(inputs, index, ptr=ptr, dim_size=dim_size, dim=self.node_dim)


def _of_towers(conv: Any, x: Tensor) -> Tensor:
    """Features ``[rows, in_channels]`` as those of each tower, ``[rows, towers, F_in]``."""
    if conv.divide_input:
        return x.view(-1, conv.towers, conv.F_in)
    return x.view(-1, 1, conv.F_in).repeat(1, conv.towers, 1)


def _may_scale_later(conv: Any, x: Any, edge_index: Any) -> bool:
    """Whether nobody sees what towers are given, of a layer that is as PyG made it."""
    if torch.compiler.is_compiling() or torch.jit.is_scripting() or is_observed(conv):
        return False
    if type(edge_index) is not Tensor or edge_index.layout is not torch.strided:
        return False
    if why_not_device(edge_index) is not None:
        return False
    # of so few edges PyG's operators run, which scale what they aggregate
    if are_fewer(edge_index, fewest_of_towers(conv.F_in, conv.edge_dim is not None)):
        return False
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != conv.in_channels:
        return False
    if torch.is_autocast_enabled(x.device.type):
        return False
    scaler = conv.aggr_module
    if type(scaler) is not DegreeScalerAggregation or why_not_as_it_is(scaler, 'aggr_module') is not None:
        return False
    if len(scaler.scaler) < 2 or not _SCALERS.keys() >= set(scaler.scaler) or is_parametrized(scaler):
        return False
    return _begin_with_maps(conv.post_nns)


def _begin_with_maps(nns: Any) -> bool:
    """Whether the networks of towers begin with linear maps of the same shape, and nobody watches."""
    for nn in nns:
        if type(nn).forward is not Sequential.forward or why_not_as_it_is(nn, 'nn') is not None or not len(nn):
            return False
        # what is computed at each read, or drawn, is read in PyG's order
        if not isinstance(nn[0], Linear) or why_not_linear(nn[0], 'nn') is not None or is_parametrized(nn[0]):
            return False
    return len({(nn[0].in_channels, nn[0].out_channels, nn[0].bias is None) for nn in nns}) == 1


def _degrees(edge_index: Tensor, flow: str, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor]:
    return (degree(edge_index[target_row_of(flow)], num_nodes, dtype),)


_kept_degrees = kept_with_edges(_degrees)


def _factors(scaler: DegreeScalerAggregation, edge_index: Tensor, flow: str, x: Tensor) -> Tensor:
    """What each scaler multiplies the messages of each node by: ``[nodes, scalers, 1]``."""
    (degrees,) = _kept_degrees(edge_index, flow, x.shape[0], x.dtype)
    factors = [_SCALERS[name](degrees, scaler.avg_deg_lin, scaler.avg_deg_log) for name in scaler.scaler]
    return torch.stack(factors, dim=1).unsqueeze(2)


def _through_towers(conv: Any, x: Tensor, aggregated: Tensor, factors: Tensor) -> Tensor:
    """The results of all towers side by side.

    Args:
        conv: The layer.
        x: Its features, ``[nodes, in_channels]``.
        aggregated: Messages, not scaled: ``[nodes, towers, aggregators * F_in]``.
        factors: What they are scaled by, ``[nodes, scalers, 1]``.
    """
    firsts = [nn[0] for nn in conv.post_nns]
    weight = _stacked([first.weight for first in firsts])
    own, of_messages = weight.split((conv.F_in, weight.shape[2] - conv.F_in), dim=2)
    num_scalers, width = factors.shape[1], aggregated.shape[2]
    of_messages = of_messages.unflatten(2, (num_scalers, width)).permute(0, 3, 2, 1).flatten(2)
    mapped = torch.matmul(aggregated.transpose(0, 1), of_messages).unflatten(2, (num_scalers, -1))
    out = (mapped * factors).sum(dim=2)
    biases = [first.bias for first in firsts]
    bias = None if biases[0] is None else torch.cat(biases)
    if conv.divide_input:
        of_towers = _of_towers(conv, x).transpose(0, 1)
        out = (torch.matmul(of_towers, own.transpose(1, 2)) + out).transpose(0, 1)
        out = out if bias is None else out + bias.view(len(firsts), -1)
    else:
        out = F.linear(x, own.flatten(0, 1), bias).unflatten(1, (len(firsts), -1)) + out.transpose(0, 1)
    return _through_rest(conv.post_nns, out)


def _stacked(weights: Sequence[Tensor]) -> Tensor:
    return weights[0].unsqueeze(0) if len(weights) == 1 else torch.stack(weights)


def _through_rest(nns: Sequence[Sequential], out: Tensor) -> Tensor:
    """What the modules after the first of each tower give, side by side."""
    if all(len(nn) == 1 for nn in nns):
        return out.flatten(1)
    found = []
    for nn, rows in zip(nns, out.unbind(1), strict=True):
        for module in list(nn)[1:]:
            rows = module(rows)
        found.append(rows)
    return torch.cat(found, dim=1)
