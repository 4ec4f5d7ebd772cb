"""Messages that are a network of an edge's ends and features, taken on chunks of edges: reduced, returned, or both."""

from __future__ import annotations

import dataclasses
import functools
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import BatchNorm1d

from pygfuse.compiler.ir import EDGE, SHARED, SOURCE, TARGET, Node, in_order, value
from pygfuse.compiler.refusal import Refused
from pygfuse.ops import Edges
from pygfuse.ops.degrees import mean_of
from pygfuse.ops.edge_mlp import (
    Begin,
    EdgeStage,
    Map,
    Normalise,
    Plus,
    edge_network,
    edge_reduce,
    edge_states,
    normalised,
    why_no_edge_chunks,
    why_no_places,
)
from pygfuse.ops.few_edges import TYPES
from pygfuse.ops.intercepted import is_intercepted
from pygfuse.ops.listed import are_taken_at_once
from pygfuse.program.activation import SELU, Activation

# an activation's arguments, each with what it is where nobody gives it
_NUMBERS: dict[str, tuple[tuple[str, float], ...]] = {
    'relu': (),
    'leaky_relu': (('negative_slope', 0.01),),
    'elu': (('alpha', 1.0),),
    'selu': (),
    'silu': (),
    'gelu': (('approximate', 'none'),),
    'tanh': (),
    'sigmoid': (),
    'softplus': (('beta', 1.0), ('threshold', 20.0)),
}


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


Stage: TypeAlias = Layer | Norm | Batch | Term | Activation


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
            return None
        return why_no_edge_chunks(dtype) or (why_no_places(edges.graph()) if self.reduce == 'max' else None)

    def is_at_once(self, edges: Edges, dtype: torch.dtype) -> bool:
        """Whether so few edges each have a row at once; ties in a maximum share its gradient then, as in PyG."""
        return dtype in TYPES and are_taken_at_once(edges, self._widest, dtype.itemsize) and not is_intercepted()

    @functools.cached_property
    def _widest(self) -> int:
        """The most numbers of an edge behind any stage."""
        first = [self.operands[name] for name in self._ends or ('features',)]
        maps = [stage.weight for stage in self.stages if isinstance(stage, Layer)]
        return max(*[node.width for node in first], *[self.operands[name].shape[0] for name in maps], 1)

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

    def why_edges_tie(self, weights: list[Tensor]) -> str | None:
        """The reason, if any, for which edges tie in a maximum, which then divides a gradient as PyG does not."""
        if self.reduce != 'max':
            return None
        weights = [*weights, *(module.weight for module in self.batch_norms if module.weight is not None)]
        # a scale is a number for each channel
        rows = [weight if weight.dim() > 1 else weight.unsqueeze(1) for weight in weights]
        return None if all(bool(of.any(dim=1).all()) for of in rows) else 'all edges tie where a row of weights is zero'

    def run(self, edges: Edges, operands: dict[str, Tensor]) -> dict[int, Tensor]:
        """The values of the reduction and of the message, of these what is wanted, by the identity of their nodes."""
        stages = self._stages(operands, edges)
        if self.reduction is None:
            return {id(self.message): edge_states(stages, edges)}
        reduce = 'max' if self.reduce == 'max' else 'sum'
        if self.is_returned:
            out, state = edge_network(stages, edges, reduce)
            found = {id(self.message): state}
        else:
            out, found = edge_reduce(stages, edges, reduce), {}
        if self.reduce == 'mean':
            out = mean_of(out, edges)
        return {id(self.reduction): out, **found}

    def _stages(self, operands: dict[str, Tensor], edges: Edges) -> list[EdgeStage]:
        given = {name: tensor if tensor.dim() > 1 else tensor.unsqueeze(1) for name, tensor in operands.items()
                 if name.startswith('features')}  # fmt: skip
        ends = {name: operands[name] for name in self._ends}
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
            else:
                stages.append(stage)
        return stages


def _said(stage: Stage) -> str:
    if isinstance(stage, Layer):
        return f'linear({stage.weight})'
    if isinstance(stage, Norm):
        return 'layer_norm'
    if isinstance(stage, Batch):
        return 'batch_norm'
    if isinstance(stage, Term):
        return f'+ {stage.features}' if stage.weight is None else f'+ linear({stage.features}, {stage.weight})'
    return stage.name


def network_of(message: Node, reduction: Node | None = None, is_returned: bool = False) -> Network:
    """The network that gives the values of edges.

    Args:
        message: The values.
        reduction: The value of their reduction, if there is one.
        is_returned: Whether the values themselves are wanted.

    Raises:
        Refused: If they are none.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir import leaf
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> e, weight = leaf('e', 'edge', (2,), torch.float32), leaf('weight', 'shared', (2, 4), torch.float32)
        >>> message = value('add', value('linear', value('relu', value('add', x_i, x_j)), weight), e)
        >>> network_of(message, value('reduce', message, reduce='sum')).text
        'source + target -> relu -> linear(weight 1) -> + features 0'
    """
    if reduction is not None and reduction.attributes['reduce'] not in ('sum', 'mean', 'max'):
        raise Refused(f'the reduction {reduction.attributes["reduce"]!r} of a network')
    reader = _Reader()
    reader.read(message)
    if not is_returned and not any(map(_has_map, reader.stages)):
        raise Refused('a network without linear maps')
    return Network(tuple(reader.stages), reader.operands, message, reduction, is_returned)


class _Reader:
    """Takes a network apart, from its values back to its beginning."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.operands: dict[str, Node] = {}

    def read(self, node: Node) -> None:
        """Notes stages and operands.

        Raises:
            Refused: If the value is no network.
        """
        while _terms(node) is None:
            node = self._before(node)
        self._begin(_terms(node), node.shape)
        self.stages.reverse()

    def _named(self, name: str, node: Node | None) -> str | None:
        """The name of an operand, which is remembered."""
        if node is None:
            return None
        name = f'{name} {len(self.stages)}'
        self.operands[name] = node
        return name

    def _before(self, node: Node) -> Node:
        """What a stage is computed of; the stage is added."""
        if len(node.shape) != 1 or node.residency != EDGE:
            raise Refused('a network of rows of several dimensions')
        bias = None
        if node.op == 'add':
            node, bias = self._without_addend(node)
            if bias is None:
                return node
        if node.op == 'linear' and node.args[1].residency == SHARED:
            self.stages.append(Layer(self._named('weight', node.args[1]), self._named('bias', bias)))
            return node.args[0]
        if bias is not None:
            raise Refused('a network that adds something else than a bias or features of edges')
        if node.op == 'layer_norm' and all(a is None or a.residency == SHARED for a in node.args[2:4]):
            x, _, weight, bias, eps = node.args
            self.stages.append(Norm(self._named('scale', weight), self._named('shift', bias), float(eps)))
            return x
        if node.op == 'batch_norm':
            self.stages.append(Batch(node.attributes['module']))
        else:
            self.stages.append(_activation(node))
        return node.args[0]

    def _without_addend(self, node: Node) -> tuple[Node, Node | None]:
        """The larger summand and a bias, or what is left after features of edges as a stage, and None."""
        first, second = node.args
        if not isinstance(first, Node) or not isinstance(second, Node):
            raise Refused('a network that adds something else than a bias or features of edges')
        for term, other in ((first, second), (second, first)):
            if term.residency == EDGE and other.residency == EDGE and term.shape == other.shape == node.shape:
                found = _features(term)
                if found is not None:
                    features, weight = found
                    self.stages.append(Term(self._named('features', features), self._named('weight', weight)))
                    return other, None
        if second.residency != SHARED or len(second.shape) > 1 or first.op != 'linear':
            raise Refused('a network that adds something else than a bias or features of edges')
        return first, second

    def _begin(self, terms: list[tuple[bool, Node]], shape: tuple[int, ...]) -> None:
        """Takes the sum of the terms of sources and of targets, and features of edges."""
        if len(shape) != 1:
            raise Refused('a network of rows of several dimensions')
        features = [pair for pair in terms if pair[1].residency == EDGE]
        if any(is_negative or term.shape != shape for is_negative, term in features):
            raise Refused('a network that subtracts features of edges')
        ends = [pair for pair in terms if pair[1].residency != EDGE]
        found = _ends(ends, shape)
        constant = found.pop(SHARED, None)
        for _, term in features[0 if found else 1 :]:
            inner, weight = _features(term)
            self.stages.append(Term(self._named('features', inner), self._named('weight', weight)))
        if found:
            self.operands |= found
            return
        inner, weight = _features(features[0][1]) if features else (None, None)
        if weight is None:
            raise Refused('a network of neither ends nor features of edges')
        self.operands['features'] = inner
        self.stages.append(Layer(self._named('weight', weight), self._named('bias', constant)))


def _has_map(stage: Stage) -> bool:
    """Whether a stage reads other values than each one by itself."""
    return isinstance(stage, (Layer, Norm, Batch)) or (isinstance(stage, Term) and stage.weight is not None)


def _features(node: Node) -> tuple[Node, Node | None] | None:
    """The features that a call brings for each edge, and the weight of a map of them; None for another value."""
    weight = None
    if node.op == 'linear' and node.args[1].residency == SHARED:
        node, weight = node.args
    width = node.width
    while node.op == 'reshape':
        (node,) = node.args
    is_row = len(node.shape) == 1 or (node.shape == () and width == 1)
    return (node, weight) if node.op == 'input' and node.residency == EDGE and is_row else None


def _activation(node: Node) -> Activation:
    if node.op not in _NUMBERS or len(node.args) != 1:
        raise Refused(f'{node.op} of values that each edge has of its own')
    names = dict(_NUMBERS[node.op])
    if not set(node.attributes) <= set(names):
        raise Refused(f'{node.op} with these arguments')
    given = [node.attributes.get(name, default) for name, default in names.items()]
    if node.op == 'gelu':
        return Activation('gelu_tanh' if given[0] == 'tanh' else 'gelu')
    if node.op in ('elu', 'selu'):
        return Activation('elu', SELU if node.op == 'selu' else (float(given[0]), 1.0))
    return Activation(node.op, tuple(float(number) for number in given))


def _terms(node: Node) -> list[tuple[bool, Node]] | None:
    """The terms of a sum of values of nodes and features of edges, each with whether it is subtracted, or None."""
    if node.residency in (SOURCE, TARGET, SHARED) or _features(node) is not None:
        return [(False, node)]
    if node.op not in ('add', 'sub') or not all(isinstance(argument, Node) for argument in node.args):
        return None
    first, second = (_terms(argument) for argument in node.args)
    if first is None or second is None:
        return None
    is_difference = node.op == 'sub'
    return [*first, *((negative != is_difference, term) for negative, term in second)]


def _ends(terms: list[tuple[bool, Node]], shape: tuple[int, ...]) -> dict[str, Node]:
    """The sums of the terms of sources and of targets; what is shared joins one of them, if there is one."""
    found: dict[str, Node] = {}
    # shared terms last: they join an end
    for negative, term in sorted(terms, key=lambda pair: pair[1].residency == SHARED):
        side = term.residency
        if side == SHARED:
            side = TARGET if TARGET in found else next(iter(found), SHARED)
        if side not in found and term.shape != shape:
            raise Refused('a network of numbers of an end of an edge that are repeated')
        if side in found:
            found[side] = value('sub' if negative else 'add', found[side], term)
        else:
            found[side] = value('neg', term) if negative else term
    return found
