"""The fused FiLM graph convolutional operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from pygfuse._lib.hooks import weight_and_bias
from pygfuse.conv._edge_mlp.network import Slope, UnsupportedNetwork, activation_of
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import Inputs, NodePair, is_edge_index, is_sparse_tensor
from pygfuse.conv._layer.copies import EachCopy
from pygfuse.conv._layer.few_edges import FewWalk
from pygfuse.conv._layer.relations import relations_of, why_no_relations, why_not_stacked
from pygfuse.conv._layer.spec import Spec
from pygfuse.graph.relations import Relations
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Form, Part, Weights
from pygfuse.ops.typed.pairs import gathered, walked
from pygfuse.ops.typed.typed_product import typed_product
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.library.film import FILM
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.products import OperandValue
from pygfuse.program.program import SOURCE, TARGET


class FiLMConv(EachCopy, torch_geometric.nn.FiLMConv):
    r"""`torch_geometric.nn.FiLMConv`, fused: the same parameters, options and numbers, no loop over relations.

    From the `"GNN-FiLM: Graph Neural Networks with Feature-wise Linear Modulation" <https://arxiv.org/abs/1906.12192>`_
    paper.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{r \in \mathcal{R}} \underset{j \in \mathcal{N}_r(i)}{\mathrm{aggr}} \; \sigma
        \left( \boldsymbol{\gamma}_{r,i} \odot \mathbf{W}_r \mathbf{x}_j + \boldsymbol{\beta}_{r,i} \right)

    Neighbours are mapped once for each relation of which they have an edge, and so are targets, to scales and shifts.
    One walk over all edges aggregates for each relation and target; its results are then added up. A network `nn` of
    one's own is called for each relation, as in PyG, and the rows that have edges are taken.

    Activations that have no form on edges (``ShiftedSoftplus``, functions of one's own) run PyG's path.

    Args:
        in_channels: The width of the features, or :obj:`-1` to derive the size from the first input(s).
        out_channels, num_relations, nn, act, aggr: As in PyG.

    Shapes and errors are those of `FusedConv`; an ``edge_type`` that is no relation raises a ValueError.

    Example:
        >>> conv = FiLMConv(16, 8, num_relations=2)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 0])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar = {'x': Tensor, 'beta': Tensor, 'gamma': Tensor}
    spec = Spec(None, in_channels='in_channels', parameter='lin_skip', needs_targets=True, static=True)
    is_long_each = True

    def forward(self, x: Any, edge_index: Any, edge_type: OptTensor = None) -> Tensor:
        """Runs the layer; arguments and results are those of PyG's ``FiLMConv.forward``."""
        return self.fused(x, edge_index, edge_type=edge_type)

    def prepare(self) -> str | tuple[Any]:
        try:
            act = activation_of(self.act, 'act')
        except UnsupportedNetwork as reason:
            return reason.args[0]
        if act is not None and _name_of(act) not in FILM:
            return f'the activation {act.name} has no form on edges'
        return (act,)

    def kind_of_prepared(self, prepared: str | tuple[Any]) -> tuple[tuple, tuple] | None:
        # of several relations, each call's types of edges are looked at
        if isinstance(prepared, str) or self.num_relations > 1:
            return None
        # a slope is read in each call
        return (), tuple([type(act) if isinstance(act, Slope) else act for act in prepared])

    def why_not_call(self, inputs: Inputs) -> str | None:
        if self.num_relations <= 1:
            return None
        if not is_edge_index(inputs.adjacency) and not is_sparse_tensor(inputs.adjacency):
            return 'a torch.sparse adjacency'
        return why_no_relations()

    def are_so_few(self, adjacency: Any) -> bool:
        return self.num_relations > 1 and fallback.are_so_few([adjacency], self.out_channels)

    def begin(self, inputs: Inputs) -> Tensor:
        return self._own(inputs.x[1])

    def _own(self, target: Tensor) -> Tensor:
        """What a node is without neighbours."""
        beta, gamma = self.film_skip(target).split(self.out_channels, dim=-1)
        out = gamma * self.lin_skip(target) + beta
        return out if self.act is None else self.act(out)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: tuple[Any]) -> tuple[Tensor, OptTensor]:
        (act,) = prepared
        program = FILM['none' if act is None else _name_of(act)]
        operands = {} if act is None else self._of_activation(act)
        if self.num_relations <= 1:
            film = self.films[0](inputs.x[1])
            return self.run(program, operands | self._of_nodes(self.lins[0](inputs.x[0]), film), inputs, edges)
        if is_sparse_tensor(inputs.adjacency):
            # PyG's takes the values and nothing else
            inputs = inputs._replace(edge_type=None)
        relations = relations_of(inputs, edges, self.num_relations)
        operands |= self._of_nodes(*self._mapped(inputs, relations))
        found, _ = self.run(program, operands, inputs, walked(relations.between_pairs))
        return aggregate(NEIGHBOURS, walked(relations.sums), {'x': found}, 1, self.out_channels, flat=True), None

    def _mapped(self, inputs: Inputs, relations: Relations) -> tuple[Tensor, Tensor]:
        """Neighbours, and shifts and scales of targets, as their relations map them, a row for each pair."""
        source, target = (part[:] for part in inputs.x) if is_deferring() else inputs.x
        of_sources, of_targets = relations.sources, relations.targets
        if why_not_stacked(self.lins) or why_not_stacked(self.films):
            films, mapped = [], []
            places = zip(of_sources.by_relation(), of_targets.by_relation(), strict=True)
            for lin, film, (sources, targets) in zip(self.lins, self.films, places, strict=True):
                films.append(film(target).index_select(0, targets))
                mapped.append(lin(source).index_select(0, sources))
            return torch.cat(mapped), torch.cat(films)
        # in PyG's order: a parametrization may draw at each read
        read = [(film.weight, film.bias, lin.weight) for lin, film in zip(self.lins, self.films, strict=True)]
        film, shift, lin = zip(*read, strict=True)
        bias = None if shift[0] is None else torch.stack(shift)
        films = typed_product(target, torch.stack(film).transpose(1, 2), gathered(of_targets), bias)
        return typed_product(source, torch.stack(lin).transpose(1, 2), gathered(of_sources)), films

    def _of_nodes(self, mapped: Tensor, film: Tensor) -> dict[str, OperandValue]:
        beta, gamma = film.split(self.out_channels, dim=-1)
        return {'x': mapped, 'gamma': gamma, 'beta': beta}

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: tuple[Any]) -> FewWalk | None:
        (act,), channels = prepared, self.out_channels
        if self.num_relations > 1 or isinstance(act, Slope):
            return None
        beta, gamma = (Part(TARGET, 1, outputs=(first, channels)) for first in (0, channels))
        made = {'x': (Part(SOURCE, 0),), 'gamma': (gamma,), 'beta': (beta,)}
        program = FILM['none' if act is None else _name_of(act)]
        numbers = {} if act is None else act.named_numbers
        return FewWalk(Form(program, made, 1, channels, numbers=numbers, reduce=self.reduction), ('lins.0', 'films.0'))

    def map_of_few(self, name: str) -> Weights | None:
        return weight_and_bias(self.get_submodule(name))

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> OptTensor:
        out = self.walk_few(x, edges, form)
        return None if out is None else self._own(x[1]) + out

    def _of_activation(self, act: Any) -> dict[str, OperandValue]:
        if isinstance(act, Slope):
            return {'slope': act.weight.expand(self.out_channels).unsqueeze(0)}
        return act.named_numbers

    def finish(self, out: Tensor, x: Any, begun: Tensor) -> Tensor:
        return begun + out


def _name_of(act: Any) -> str:
    return 'prelu' if isinstance(act, Slope) else act.name
