"""The fused edge convolutional operator."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import PairTensor

from pygfuse._lib.hooks import LINEAR
from pygfuse.conv._edge_mlp.along_few_edges import few_edge_network_of
from pygfuse.conv._edge_mlp.network import (
    Linear,
    Norm,
    Slope,
    Stage,
    UnsupportedNetwork,
    check_widths,
    is_dropping,
    kind_of_stages,
    stages_of,
    tensors_of_stages,
)
from pygfuse.conv._edge_mlp.values import EdgeValues
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import Inputs
from pygfuse.conv._layer.copies import EachCopy
from pygfuse.conv._layer.spec import EXTREMES, Spec
from pygfuse.mapping.few_edges import MOST_PASSES, fewest_of, fewest_of_dropping
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import why_no_edge_chunks, why_no_places
from pygfuse.ops.few_edges.networks import network_along
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.program.library.edge_values import EDGE_VALUES
from pygfuse.program.networks_along_edges import FewEdgeNetwork


class EdgeConv(EachCopy, torch_geometric.nn.EdgeConv):
    r"""`torch_geometric.nn.EdgeConv`, fused: the same parameters, options and numbers.

    From the `"Dynamic Graph CNN for Learning on Point Clouds" <https://arxiv.org/abs/1801.07829>`_ paper.

    .. math::
        \mathbf{x}^{\prime}_i = \underset{j \in \mathcal{N}(i)}{\mathrm{aggr}} \; h_{\mathbf{\Theta}}
        (\mathbf{x}_i \, \Vert \, \mathbf{x}_j - \mathbf{x}_i)

    The first linear map of :math:`h_{\mathbf{\Theta}}` is taken once a node (operator reorganisation, "Understanding
    GNN Computational Graph", section 4): with :math:`\mathbf{W} = [\mathbf{W}_1, \mathbf{W}_2]` it is
    :math:`(\mathbf{W}_1 - \mathbf{W}_2) \mathbf{x}_i + \mathbf{W}_2 \mathbf{x}_j + \mathbf{b}`. Batch normalisation
    over edges has the statistics of PyG's and folds into what is beside it; what never falls is taken after a
    maximum, what is linear after a sum. What remains between linear maps runs on chunks of edges.

    Fused are linear maps, batch normalisation, activations, dropout and PyG's ``MLP``; another ``nn`` runs PyG's path.

    Where several edges of a target have the maximum or minimum, PyG divides the gradient among them. So does any
    network of linear maps and activations along few edges, up to some thousands, and one whose stages after the first
    linear map never fall along any number; a deeper one gives it to the first of these edges. Edges of
    equal points then share a gradient differently, and the gradients of parameters are PyG's. Such a network whose
    parameters alone make edges tie, by a scale of zero in a batch normalisation or (if it is a deeper one) a row of
    zeros in a linear map or a slope of zero in a PReLU, runs PyG's path; within ``torch.compile`` values are not
    looked at.

    Args:
        nn, aggr: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> nn = torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
        >>> conv = EdgeConv(nn)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': PairTensor}
    spec = Spec(None, needs_targets=True, static=True, reorganised=True, saves_rows=True)
    has_network = True

    def forward(self, x: Any, edge_index: Any) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``EdgeConv.forward``."""
        return self.fused(x, edge_index)

    def prepare(self) -> list[Stage] | str:
        try:
            return stages_of(self.nn)
        except UnsupportedNetwork as reason:
            return reason.args[0]

    def kind_of_prepared(self, prepared: list[Stage] | str) -> tuple[tuple, tuple] | None:
        return None if isinstance(prepared, str) else kind_of_stages(prepared)

    def are_so_few(self, adjacency: Any) -> bool:
        # a normalisation over all edges is many operators on its statistics
        most = max(fewest_of(is_normalised=True, num_normalised=MOST_PASSES), fewest_of_dropping(1))
        if not fallback.are_fewer(adjacency, most) or not isinstance(self.nn, torch.nn.Module):
            return False
        modules = [*self.nn.modules()]
        norms = [module for module in modules if isinstance(module, torch.nn.BatchNorm1d)]
        fewest = fewest_of(is_normalised=True, num_normalised=sum(module.training for module in norms)) if norms else 0
        if any(map(is_dropping, modules)):
            # one node of autograd holds all of a network that drops nothing
            width = next((module.weight.shape[0] for module in modules if type(module) in LINEAR), 1)
            fewest = max(fewest, fewest_of_dropping(width))
        return fallback.are_fewer(adjacency, fewest)

    def tensors_of_layer(self, prepared: list[Stage]) -> dict[str, Tensor]:
        return tensors_of_stages(prepared)

    def why_not_edges(self, inputs: Inputs, edges: Edges, prepared: list[Stage]) -> str | None:
        reason = None if _is_one_program(prepared) else why_no_edge_chunks(inputs.x[0].dtype)
        if reason is not None:
            return reason
        if self.reduction not in EXTREMES or torch.compiler.is_compiling():
            return None
        return why_no_places(edges.graph()) or _why_edges_tie(prepared)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: list[Stage]) -> tuple[Tensor, None]:
        values = EdgeValues(inputs.x, edges, edges.num_edges)
        for stage in prepared:
            values.apply(stage)
        return values.aggregate(self.reduction), None

    def form_of_few(self, x: Tensor | tuple[Tensor, Tensor], prepared: list[Stage]) -> FewEdgeNetwork | None:
        source, is_shared = (x, True) if isinstance(x, Tensor) else (x[0], False)
        return few_edge_network_of(prepared, source, self.reduction, is_shared)

    def width_of_few(self, width: int, form: FewEdgeNetwork) -> int:
        return form.held

    def products_of_few(self, form: FewEdgeNetwork) -> tuple[int, int]:
        return form.products

    def sum_few(self, x: tuple[Tensor, Tensor], edges: FewEdges, form: FewEdgeNetwork, prepared: list[Stage]) -> Tensor:
        modules = [stage.module for stage in prepared if isinstance(stage, Linear)]
        pair = (x[0], None) if form.shared else x
        return network_along(form, edges, pair, [m.weight for m in modules], [m.bias for m in modules])

    def check(self, inputs: Inputs, prepared: list[Stage]) -> None:
        x, (first, *_) = inputs.x, prepared
        taken, width = first.module.weight.shape[1], x[0].shape[1]
        if x[1].shape[1] != width or taken != 2 * width:
            raise ValueError(
                f"Expected 'x' to have {taken // 2} features, half of what nn takes (got shapes "
                f'{list(x[0].shape)} and {list(x[1].shape)})'
            )
        check_widths(prepared)


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
