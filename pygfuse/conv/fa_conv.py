"""The fused frequency adaptive operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, PairTensor

from pygfuse.conv._layer.attention import head_products
from pygfuse.conv._layer.checks import Inputs, NodePair, is_edge_index
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.normalise import cached_factors, factors_of_few
from pygfuse.conv._layer.spec import BEFORE_DROPOUT, SUMS, EdgeWeight, Spec
from pygfuse.ops import Edges
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Form, Part
from pygfuse.ops.nodes.large_sums import added_to
from pygfuse.ops.nodes.linear import is_plain_linear
from pygfuse.program.library.fa import FA, NORMALISED_FA
from pygfuse.program.program import SOURCE, TARGET


class FAConv(FusedConv, torch_geometric.nn.FAConv):
    r"""`torch_geometric.nn.FAConv`, fused: the same parameters, options and numbers.

    From the `"Beyond Low-Frequency Information in Graph Convolutional Networks" <https://arxiv.org/abs/2101.00797>`_
    paper.

    .. math::
        \mathbf{x}^{\prime}_i = \epsilon \mathbf{x}^{(0)}_i + \sum_j \frac{\alpha_{ij}}{\sqrt{d_i d_j}} \mathbf{x}_j,
        \quad \alpha_{ij} = \tanh(\mathbf{a}^{\top} [\mathbf{x}_i, \mathbf{x}_j])

    Args:
        channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        eps, dropout, cached, add_self_loops, normalize: As in PyG.

    Shapes and errors are those of `FusedConv`.

    Example:
        >>> import torch
        >>> x = torch.randn(3, 16)
        >>> FAConv(16)(x, x, torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    propagate_type: ClassVar = {'x': Tensor, 'alpha': PairTensor, 'edge_weight': OptTensor}
    spec = Spec(
        NORMALISED_FA, SUMS, edge=EdgeWeight(FA), in_channels='channels', parameter='att_l', loops=True,
        attention=BEFORE_DROPOUT, bipartite=False, static=True,
    )  # fmt: skip

    def forward(
        self, x: Tensor, x_0: Tensor, edge_index: Any, edge_weight: OptTensor = None,
        return_attention_weights: bool | None = None,
    ) -> Any:  # fmt: skip
        """Runs the layer; arguments and results are those of PyG's ``FAConv.forward``."""
        given = {'x_0': x_0, 'edge_weight': edge_weight, 'return_attention_weights': return_attention_weights}
        return self.fused(x, edge_index, **given)

    def why_not_call(self, inputs: Inputs) -> str | None:
        if self.cached:
            return 'it caches the first adjacency'
        if not is_edge_index(inputs.adjacency):
            return 'a sparse adjacency brings its own weights'
        mismatch = (inputs.edge is None) != self.normalize
        return 'edge_weight goes with normalize=False and only with it' if mismatch else None

    def begin(self, inputs: Inputs) -> OptTensor:
        return inputs.others['x_0'] if self.eps != 0.0 else None

    def adds_loops(self) -> bool:
        return self.normalize and self.add_self_loops

    given_of_few: ClassVar = ('x_0',)

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        if not self.normalize:
            return None
        made = {'x': (Part(SOURCE),), 'alpha_src': (Part(SOURCE, 0),), 'alpha_dst': (Part(TARGET, 1),)}
        form = Form(
            *(NORMALISED_FA, made, 1, x[0].shape[1]), given=('norm_src', 'norm_dst'), reduce=self.reduction,
            loops=self.add_self_loops,
        )  # fmt: skip
        return FewWalk(form, ('att_l', 'att_r'))

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> OptTensor:
        factors = factors_of_few(edges, self.add_self_loops, x[0])
        out = self.walk_few(x, edges, form, more=(factors, factors))
        if out is None or self.eps == 0.0:
            return out
        return out + self.eps * edges.given['x_0']

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, OptTensor]:
        x, program = inputs.x[0], NORMALISED_FA if self.normalize else FA
        operands = dict(zip(('x', 'alpha_src', 'alpha_dst'), self._dots(x), strict=True))
        if self.normalize:
            operands['norm_src'] = operands['norm_dst'] = cached_factors(edges, None, x)
        else:
            operands['edge_weight'] = self.edge_input(inputs, edges).values
        out, _ = self.run(program, operands, inputs._replace(with_weights=False), edges)
        if not inputs.with_weights:
            return out, None
        graph = edges.graph()
        pair = graph.coo().long()
        of_ends = operands['alpha_src'][pair[1 - graph.target_row]] + operands['alpha_dst'][pair[graph.target_row]]
        return out, of_ends.tanh().squeeze(-1)

    def finish(self, out: Tensor, x: NodePair, begun: OptTensor) -> Tensor:
        return out if begun is None else added_to(out, begun, self.eps)

    def _dots(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The features, and their dots with the two vectors of attention."""
        are_dots = all(is_plain_linear(module) and module.bias is None for module in (self.att_l, self.att_r))
        if are_dots and x.dim() == 2 and x.layout is torch.strided:
            x, *dots = head_products(x.unsqueeze(1), self.att_l.weight.unsqueeze(0), self.att_r.weight.unsqueeze(0))
            return x.squeeze(1), *dots
        return x, self.att_l(x), self.att_r(x)
