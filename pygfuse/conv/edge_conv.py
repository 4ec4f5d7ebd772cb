"""The fused edge convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import PairTensor

from pygfuse.conv._edge_mlp.network import (
    Linear,
    Norm,
    NotUnderstood,
    Slope,
    Stage,
    check_widths,
    stages_of,
    tensors_of,
)
from pygfuse.conv._edge_mlp.values import EdgeValues
from pygfuse.conv._layer import REDUCTIONS, FusedConv, nodes_of, why_not_reduce, why_not_reversed, why_not_rows
from pygfuse.ops.edge_mlp import PLACES_LIMIT
from pygfuse.program.library.edge_values import EDGE_VALUES


class EdgeNetworkConv(FusedConv):
    """A mixin for layers that run a network, ``self.nn``, on ``[x_i, x_j - x_i]`` of each edge and reduce the results.

    A subclass asks `why_not_edges` about a call and, if there is no reason, calls `over_edges`.
    """

    nn: torch.nn.Module

    def why_not(self) -> str | None:
        reason = super().why_not() or why_not_reduce(self.aggr)
        if reason is None:
            try:
                stages_of(self.nn)
            except NotUnderstood as why:
                return str(why)
        return reason

    def why_not_edges(self, pair: tuple[Tensor, Tensor | None], adjacency: Any) -> str | None:
        """The reason, if any, for which a call with these features and edges runs PyG's own path."""
        reason = self.why_not()
        if reason is not None:
            return reason
        stages = stages_of(self.nn)
        reason = self.why_not_with(adjacency, pair, **tensors_of(stages)) or why_not_rows(pair[0])
        if reason is None and pair[1] is None:
            return 'no features of the targets'
        reason = reason or why_not_reversed(self.flow, pair)
        if reason is None and pair[0].device.type != 'cpu' and not _is_one_program(stages):
            return f'networks of several stages have no fused kernels for the device {pair[0].device.type!r}'
        return reason or self._why_not_extreme(stages, pair, adjacency)

    def _why_not_extreme(self, stages: list[Stage], pair: tuple[Tensor, Tensor], adjacency: Any) -> str | None:
        if REDUCTIONS[self.aggr] not in ('max', 'min') or torch.compiler.is_compiling():
            return None
        reason = _why_edges_tie(stages)
        if reason is not None:
            return reason
        _, graph = nodes_of(self, pair, adjacency)
        if graph.num_edges > PLACES_LIMIT and graph.max_degree > PLACES_LIMIT:
            return f'a node of more than {PLACES_LIMIT} edges'
        return None

    def over_edges(self, pair: tuple[Tensor, Tensor], adjacency: Any) -> Tensor:
        """The network's values on the edges, reduced over each target's: ``[targets, channels]``.

        Args:
            pair: Features of sources and of targets.
            adjacency: Any adjacency.

        Raises:
            ValueError: If the features do not have half the width that ``nn`` takes, a stage of ``nn`` takes another
                number of features than comes into it, or ``edge_index`` names a node that is not there.
        """
        stages = stages_of(self.nn)
        self._check_width(pair, stages[0])
        check_widths(stages)
        edges, graph = nodes_of(self, pair, adjacency)
        values = EdgeValues(pair, edges, edges.token.shape[1] if graph is None else graph.num_edges)
        with self.noted():
            for stage in stages:
                values.apply(stage)
            return values.aggregate(REDUCTIONS[self.aggr])

    def _check_width(self, pair: tuple[Tensor, Tensor], first: Linear) -> None:
        taken, width = first.module.weight.shape[1], pair[0].shape[1]
        if pair[1].shape[1] != width or taken != 2 * width:
            raise ValueError(
                f"Expected 'x' to have {taken // 2} features, half of what nn takes (got shapes "
                f'{list(pair[0].shape)} and {list(pair[1].shape)})'
            )


def _is_one_program(stages: list[Stage]) -> bool:
    """Whether a network is a linear map and at most one activation that has a program: a walk on any device."""
    return len(stages) == 1 or (len(stages) == 2 and getattr(stages[1], 'name', None) in EDGE_VALUES)


def _shares_ties(stages: list[Stage]) -> bool:
    """Whether what remains before a maximum is a walk, which divides the gradient among ties as PyG does."""
    return _is_one_program(stages) or all(isinstance(s, Norm) or getattr(s, 'rises', False) for s in stages[1:])


def _why_edges_tie(stages: list[Stage]) -> str | None:
    """The reason, if any, for which edges of unlike points tie, and a gradient that is divided otherwise is wrong."""
    shared = _shares_ties(stages)
    for i, stage in enumerate(stages):
        weight = stage.weight if isinstance(stage, Slope) else getattr(getattr(stage, 'module', None), 'weight', None)
        if weight is None:
            continue
        weight = weight.detach()
        if isinstance(stage, Norm):
            if not bool(weight.all()):
                return 'all edges tie where a scale of a BatchNorm is zero'
        elif shared:
            continue
        elif isinstance(stage, Slope):
            if not bool(weight.all()):
                return 'edges tie where a slope of a PReLU is zero'
        # of the first map the half that takes x_j - x_i counts
        elif not bool(weight[:, 0 if i else weight.shape[1] // 2 :].any(dim=1).all()):
            return 'all edges tie where a row of weights of a Linear is zero'
    return None


class EdgeConv(EdgeNetworkConv, torch_geometric.nn.EdgeConv):
    r"""`torch_geometric.nn.EdgeConv`, fused: the same parameters, options and numbers.

    .. math::
        \mathbf{x}^{\prime}_i = \underset{j \in \mathcal{N}(i)}{\mathrm{aggr}} \; h_{\mathbf{\Theta}}
        (\mathbf{x}_i \, \Vert \, \mathbf{x}_j - \mathbf{x}_i)

    The first linear map of :math:`h_{\mathbf{\Theta}}` is taken once a node (operator reorganisation, "Understanding
    GNN Computational Graph", section 4): with :math:`\mathbf{W} = [\mathbf{W}_1, \mathbf{W}_2]` it is
    :math:`(\mathbf{W}_1 - \mathbf{W}_2) \mathbf{x}_i + \mathbf{W}_2 \mathbf{x}_j + \mathbf{b}`. Batch normalisation
    over edges has the statistics of PyG's and folds into what is beside it; what never falls is taken after a
    maximum, what is linear after a sum. What remains between linear maps runs on tiles of edges.

    Fused are linear maps, batch normalisation, activations and PyG's ``MLP``; another ``nn`` runs PyG's path.

    Where several edges of a target have the maximum or minimum, PyG divides the gradient among them. So does a network
    whose stages after the first linear map never fall; a deeper one gives it to the first of these edges. Edges of
    equal points then share a gradient differently, and the gradients of parameters are PyG's. A network whose
    parameters alone make edges tie, by a scale of zero in a batch normalisation or (if it is a deeper one) a row of
    zeros in a linear map or a slope of zero in a PReLU, runs PyG's path; within ``torch.compile`` values are not
    looked at.

    Args:
        nn, aggr: As in PyG.

    Shapes:
        As in PyG.

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or
            device than expected.

    Example:
        >>> nn = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
        >>> conv = EdgeConv(nn)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': PairTensor}
    rests_on_reorganisation: ClassVar = True

    def forward(self, x: Tensor | tuple[Tensor, Tensor], edge_index: Any) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``EdgeConv.forward``."""
        pair = (x, x) if isinstance(x, Tensor) else (x[0], x[1])
        if not self.runs_fused(self.why_not_edges(pair, edge_index)):
            return super().forward(x, edge_index)
        return self.over_edges(pair, edge_index)
