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
from torch_geometric.nn.aggr import DegreeScalerAggregation
from torch_geometric.typing import OptTensor
from torch_geometric.utils import degree

from pygfuse._lib.hooks import why_not_as_it_is, why_not_linear
from pygfuse.conv._fallback import is_observed
from pygfuse.conv._prepared_edges import kept_with_edges
from pygfuse.graph.adjacency import target_row_of

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

    Where somebody watches or replaces what they would not see then, the class's own ``forward`` runs.
    """

    # while messages are aggregated that are not scaled yet: what is captured of a layer reads it
    _scales_later = False

    def forward(self, x: Tensor, edge_index: Any, edge_attr: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``PNAConv.forward``."""
        if not _may_scale_later(self, x, edge_index):
            return super().forward(x, edge_index, edge_attr)
        if self.divide_input:
            x = x.view(-1, self.towers, self.F_in)
        self.__dict__['_scales_later'] = True
        try:
            aggregated = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        finally:
            self.__dict__.pop('_scales_later', None)
        return self.lin(_through_towers(self, x, aggregated, _factors(self.aggr_module, edge_index, self.flow, x)))

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: OptTensor) -> Tensor:
        """PyG's, of features that all towers have in common, too: ``[edges, F_in]``."""
        if x_i.dim() == 2:
            x_i = x_i.view(-1, 1, self.F_in).repeat(1, self.towers, 1)
            x_j = x_j.view(-1, 1, self.F_in).repeat(1, self.towers, 1)
        return super().message(x_i, x_j, edge_attr)

    def aggregate(self, inputs: Tensor, index: Tensor, ptr: OptTensor = None, dim_size: int | None = None) -> Tensor:
        """PyG's, not scaled where that comes later."""
        aggr = self.aggr_module.aggr if self._scales_later else self.aggr_module
        return aggr(inputs, index, ptr=ptr, dim_size=dim_size, dim=self.node_dim)


def _may_scale_later(conv: Any, x: Any, edge_index: Any) -> bool:
    """Whether nobody sees what towers are given, of a layer that is as PyG made it."""
    if torch.compiler.is_compiling() or torch.jit.is_scripting() or is_observed(conv):
        return False
    if type(edge_index) is not Tensor or edge_index.layout is not torch.strided:
        return False
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != conv.in_channels:
        return False
    if torch.is_autocast_enabled(x.device.type):
        return False
    scaler = conv.aggr_module
    if type(scaler) is not DegreeScalerAggregation or why_not_as_it_is(scaler, 'aggr_module') is not None:
        return False
    if len(scaler.scaler) < 2 or not _SCALERS.keys() >= set(scaler.scaler):
        return False
    return all(_begins_with_a_map(nn) for nn in conv.post_nns)


def _begins_with_a_map(nn: Any) -> bool:
    is_sequential = type(nn).forward is Sequential.forward and why_not_as_it_is(nn, 'nn') is None
    return is_sequential and len(nn) > 0 and why_not_linear(nn[0], 'nn') is None


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
        x: Its features, ``[nodes, F_in]`` of all towers or ``[nodes, towers, F_in]``.
        aggregated: Messages, not scaled: ``[nodes, towers, aggregators * F_in]``.
        factors: What they are scaled by, ``[nodes, scalers, 1]``.
    """
    firsts = [nn[0] for nn in conv.post_nns]
    # each weight is read once: a parametrised one is computed
    weight = _stacked([first.weight for first in firsts])
    own, of_messages = weight.split((conv.F_in, weight.shape[2] - conv.F_in), dim=2)
    num_scalers, width = factors.shape[1], aggregated.shape[2]
    of_messages = of_messages.unflatten(2, (num_scalers, width)).permute(0, 3, 2, 1).flatten(2)
    mapped = torch.matmul(aggregated.transpose(0, 1), of_messages).unflatten(2, (num_scalers, -1))
    out = (mapped * factors).sum(dim=2)
    biases = [first.bias for first in firsts]
    bias = None if biases[0] is None else torch.cat(biases)
    if x.dim() == 2:
        out = F.linear(x, own.flatten(0, 1), bias).unflatten(1, (len(firsts), -1)) + out.transpose(0, 1)
    else:
        out = (torch.matmul(x.transpose(0, 1), own.transpose(1, 2)) + out).transpose(0, 1)
        out = out if bias is None else out + bias.view(len(firsts), -1)
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
