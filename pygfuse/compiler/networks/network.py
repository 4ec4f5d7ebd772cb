"""Messages that are a network of an edge's ends and features, taken on chunks of edges: reduced, returned, or both."""

from __future__ import annotations

import dataclasses
import functools
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import BatchNorm1d

from pygfuse.compiler.ir.values import Node, in_order, is_of_one
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from pygfuse.ops import Edges
from pygfuse.ops.degrees import mean_of
from pygfuse.ops.edge_mlp import (
    Begin,
    Contract,
    Drop,
    EdgeStage,
    Map,
    Normalise,
    Plus,
    Times,
    edge_network,
    edge_reduce,
    edge_states,
    normalised,
    why_no_edge_chunks,
    why_no_places,
)
from pygfuse.ops.few_edges.sums import TYPES
from pygfuse.ops.listed import are_taken_at_once
from pygfuse.ops.within_torch.intercepted import is_intercepted
from pygfuse.program.activation import Activation


@dataclasses.dataclass(frozen=True)
class Layer:
    """A linear map among the stages, by the names of its operands."""

    weight: str
    bias: str | None


@dataclasses.dataclass(frozen=True)
class Norm:
    """A layer normalisation among the stages, by the names of its operands."""

    weight: str | None
    bias: str | None
    eps: float


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch normalisation over all edges among the stages, by its module."""

    module: BatchNorm1d


@dataclasses.dataclass(frozen=True)
class Term:
    """Features of edges, or a linear map of them, that are added, by the names of operands."""

    features: str
    weight: str | None


@dataclasses.dataclass(frozen=True)
class Factor:
    """Rows of sources, or features of edges, that values are multiplied with, by the name of one operand.

    Features may be one number an edge.
    """

    source: str | None = None
    features: str | None = None


@dataclasses.dataclass(frozen=True)
class Dropped:
    """A dropout among the stages, by the names of the operands that it is drawn from."""

    marks: str
    draws: str


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Rows of sources by a matrix of each edge's own, which a linear map makes of values, by the names of operands."""

    source: str
    weight: str
    bias: str | None


Stage: TypeAlias = Layer | Norm | Batch | Term | Factor | Dropped | Matrix | Activation


@dataclasses.dataclass(frozen=True)
class NetworkCall:
    """A network by the names of its operands, which holds none of their values.

    Attributes:
        stages: What happens to the sum of both ends, or to the first features where there are no ends.
        ends: The ends that are added up.
        reduce: ``'sum'``, ``'mean'`` or ``'max'``, or None.
        is_returned: Whether the values themselves are wanted.
    """

    stages: tuple[Stage, ...]
    ends: tuple[str, ...]
    reduce: str | None
    is_returned: bool

    def run(self, edges: Edges, operands: dict[str, Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """What is reduced and the values themselves, of these what is wanted.

        Args:
            edges: The edges.
            operands: The operands by name.
        """
        stages = self._stages(operands, edges)
        if self.reduce is None:
            return None, edge_states(stages, edges)
        reduce = 'max' if self.reduce == 'max' else 'sum'
        if self.is_returned:
            out, state = edge_network(stages, edges, reduce)
        else:
            out, state = edge_reduce(stages, edges, reduce), None
        return (mean_of(out, edges) if self.reduce == 'mean' else out), state

    def _stages(self, operands: dict[str, Tensor], edges: Edges) -> list[EdgeStage]:
        given = {name: tensor if tensor.dim() > 1 else tensor.unsqueeze(1) for name, tensor in operands.items()
                 if name.startswith('features')}  # fmt: skip
        ends = {name: operands[name] for name in self.ends}
        stages: list[EdgeStage] = [Begin(**ends) if ends else Begin(features=given['features'])]
        for stage in self.stages:
            if isinstance(stage, Layer):
                weight = operands[stage.weight]
                bias = None if stage.bias is None else operands[stage.bias].expand(weight.shape[0])
                stages.append(Map(weight, bias))
            elif isinstance(stage, Norm):
                stages.append(Normalise(operands.get(stage.weight), operands.get(stage.bias), stage.eps))
            elif isinstance(stage, Batch):
                stages = normalised(stages, edges, stage.module)
            elif isinstance(stage, Term):
                stages.append(Plus(given[stage.features], operands.get(stage.weight)))
            elif isinstance(stage, Factor):
                stages.append(Times(operands.get(stage.source), given.get(stage.features)))
            elif isinstance(stage, Dropped):
                stages.append(Drop(given[stage.marks], operands[stage.draws]))
            elif isinstance(stage, Matrix):
                stages.append(Contract.by(operands[stage.source], operands[stage.weight], operands.get(stage.bias)))
            else:
                stages.append(stage)
        return stages


@dataclasses.dataclass(frozen=True)
class Network:
    """A network's values on all edges, as a call wants them.

    Attributes:
        stages: What happens to the sum of both ends, or to the first features where there are no ends.
        operands: The values of the operands: ``'source'``, ``'target'``, features of edges, and what stages hold.
        message: The values.
        reduction: The value of their reduction, if there is one.
        is_returned: Whether the values themselves are wanted.
    """

    stages: tuple[Stage, ...]
    operands: dict[str, Node]
    message: Node
    reduction: Node | None
    is_returned: bool

    @property
    def reduce(self) -> str | None:
        """``'sum'``, ``'mean'`` or ``'max'``, or None."""
        return None if self.reduction is None else self.reduction.attributes['reduce']

    @property
    def call(self) -> NetworkCall:
        """What runs it."""
        return NetworkCall(self.stages, tuple(self._ends), self.reduce, self.is_returned)

    @property
    def text(self) -> str:
        """The network, for people."""
        return ' -> '.join([' + '.join(self._ends) or 'features', *map(_said, self.stages)])

    @property
    def title(self) -> str:
        """What it is, for people."""
        wanted = [name for name in (self.reduce, 'values of edges' if self.is_returned else None) if name is not None]
        return f'network on chunks of edges: {" and ".join(wanted)}'

    @property
    def _ends(self) -> list[str]:
        return [name for name in ('source', 'target') if name in self.operands]

    def why_not(self, edges: Edges, dtype: torch.dtype) -> str | None:
        """The reason, if any, for which edges like these and values of a type have no fused form."""
        if self.is_at_once(edges, dtype):
            return SO_FEW_EDGES if is_of_one(self.reduction) else None
        return why_no_edge_chunks(dtype) or (why_no_places(edges.graph()) if self.reduce == 'max' else None)

    def is_at_once(self, edges: Edges, dtype: torch.dtype) -> bool:
        """Whether so few edges each have a row at once; ties in a maximum share its gradient then, as in PyG."""
        return dtype in TYPES and are_taken_at_once(edges, self._widest, dtype.itemsize) and not is_intercepted()

    @functools.cached_property
    def _widest(self) -> int:
        """The most numbers of an edge behind any stage."""
        first = [self.operands[name] for name in self._ends or ('features',)]
        maps = [stage.weight for stage in self.stages if isinstance(stage, Layer)]
        found = [node.width for node in first] + [self.operands[name].shape[0] for name in maps]
        return max(*found, *[self._products_of(stage) for stage in self.stages if isinstance(stage, Matrix)], 1)

    def _products_of(self, stage: Matrix) -> int:
        """How many products of a source's and an edge's numbers are added up."""
        numbers = self.operands[stage.weight].shape[1] + (stage.bias is not None)
        return self.operands[stage.source].width * numbers

    @property
    def weights(self) -> list[Node]:
        """The weights of linear maps, of those on edges and of those that sources go through before, and scales."""
        held = [stage.weight for stage in self.stages if isinstance(stage, (Layer, Norm))]
        found = [self.operands[name] for name in held if name is not None]
        for node in in_order(self.operands.get('source', ())):
            if node.op == 'linear':
                found.append(node.args[1])
        return found

    @property
    def batch_norms(self) -> list[BatchNorm1d]:
        """The modules that normalise over all edges."""
        return [stage.module for stage in self.stages if isinstance(stage, Batch)]

    @property
    def is_normalised(self) -> bool:
        """Whether it normalises, over all edges or over the values of each."""
        return any(isinstance(stage, (Batch, Norm)) for stage in self.stages)

    def why_edges_tie(self, weights: list[Tensor]) -> str | None:
        """The reason, if any, for which edges tie in a maximum, which then divides a gradient as PyG does not."""
        if self.reduce != 'max' or is_of_one(self.reduction):
            return None
        weights = [*weights, *(module.weight for module in self.batch_norms if module.weight is not None)]
        # a scale is a number for each channel
        rows = [weight if weight.dim() > 1 else weight.unsqueeze(1) for weight in weights]
        return None if all(bool(of.any(dim=1).all()) for of in rows) else 'all edges tie where a row of weights is zero'


def _said(stage: Stage) -> str:
    if isinstance(stage, Layer):
        return f'linear({stage.weight})'
    if isinstance(stage, Norm):
        return 'layer_norm'
    if isinstance(stage, Batch):
        return 'batch_norm'
    if isinstance(stage, Term):
        return f'+ {stage.features}' if stage.weight is None else f'+ linear({stage.features}, {stage.weight})'
    if isinstance(stage, Factor):
        return f'* {stage.source or stage.features}'
    if isinstance(stage, Dropped):
        return 'dropout'
    if isinstance(stage, Matrix):
        return f'{stage.source} @ linear({stage.weight})'
    return stage.name
