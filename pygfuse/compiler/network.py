"""Messages that are a network of both ends of an edge: linear maps and activations, taken on chunks of edges."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from pygfuse._lib.backends import why_no_edge_chunks
from pygfuse.compiler.ir import EDGE, SHARED, SOURCE, TARGET, Node, in_order, value
from pygfuse.compiler.refusal import Refused
from pygfuse.ops import Edges
from pygfuse.ops.degrees import degrees
from pygfuse.ops.edge_mlp import EdgeStage, Map, edge_reduce, why_no_places
from pygfuse.program.activation import Activation

_NUMBERS: dict[str, tuple[tuple[str, float], ...]] = {
    'relu': (),
    'leaky_relu': (('negative_slope', 0.01),),
    'silu': (),
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
class Network:
    """A reduction of a network's values on all edges.

    Attributes:
        stages: What happens to the sum of both ends.
        operands: The values of the operands: ``'source'``, ``'target'``, and weights and biases of the maps.
        reduce: ``'sum'``, ``'mean'`` or ``'max'``.
    """

    stages: tuple[Layer | Activation, ...]
    operands: dict[str, Node]
    reduce: str

    @property
    def text(self) -> str:
        """The network, for people."""
        said = [f'linear({s.weight})' if isinstance(s, Layer) else s.name for s in self.stages]
        return ' -> '.join(['source + target', *said])

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f'network on chunks of edges: {self.reduce}'

    def why_not(self, edges: Edges) -> str | None:
        """The reason, if any, for which edges like these have no fused form."""
        graph = edges.graph()
        return why_no_edge_chunks(graph.device.type) or (why_no_places(graph) if self.reduce == 'max' else None)

    @property
    def weights(self) -> list[Node]:
        """The weights of linear maps: of those on edges, and of those that sources go through before."""
        found = [self.operands[stage.weight] for stage in self.stages if isinstance(stage, Layer)]
        for node in in_order(self.operands['source']):
            if node.op == 'linear':
                found.append(node.args[1])
        return found

    def why_edges_tie(self, weights: list[Tensor]) -> str | None:
        """The reason, if any, for which edges tie in a maximum, which then divides a gradient as PyG does not."""
        if self.reduce != 'max' or all(bool(weight.any(dim=-1).all()) for weight in weights):
            return None
        return 'all edges tie where a row of weights is zero'

    def run(self, edges: Edges, operands: dict[str, Tensor]) -> Tensor:
        """The reduced values, ``[targets, channels]``."""
        stages: list[EdgeStage] = []
        for stage in self.stages:
            if isinstance(stage, Layer):
                weight = operands[stage.weight]
                bias = weight.new_zeros(weight.shape[0]) if stage.bias is None else operands[stage.bias]
                stages.append(Map(weight, bias.expand(weight.shape[0])))
            else:
                stages.append(stage)
        reduce = 'max' if self.reduce == 'max' else 'sum'
        out = edge_reduce(operands['source'].contiguous(), operands['target'].contiguous(), stages, edges, reduce)
        return out / degrees(edges, out)[0].clamp(min=1).unsqueeze(1) if self.reduce == 'mean' else out


def network_of(reduction: Node) -> Network:
    """The network whose values are reduced.

    Raises:
        Refused: If it is none.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir import leaf
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> weight = leaf('weight', 'shared', (2, 4), torch.float32)
        >>> message = value('linear', value('relu', value('add', x_i, x_j)), weight)
        >>> network_of(value('reduce', message, reduce='max')).text
        'source + target -> relu -> linear(weight 0)'
    """
    reduce = reduction.attributes['reduce']
    if reduce not in ('sum', 'mean', 'max'):
        raise Refused(f'the reduction {reduce!r} of a network')
    stages: list[Layer | Activation] = []
    operands: dict[str, Node] = {}
    node = reduction.args[0]
    while _terms(node) is None:
        node = _before(node, stages, operands)
    operands |= _ends(_terms(node), node.shape)
    if not any(isinstance(stage, Layer) for stage in stages):
        raise Refused('a network without linear maps')
    return Network(tuple(reversed(stages)), operands, reduce)


def _before(node: Node, stages: list[Layer | Activation], operands: dict[str, Node]) -> Node:
    """What a stage is computed of; the stage is added."""
    if len(node.shape) != 1 or node.residency != EDGE:
        raise Refused('a network of rows of several dimensions')
    bias = None
    if node.op == 'add' and isinstance(node.args[1], Node) and node.args[1].residency == SHARED:
        node, bias = node.args
        if not isinstance(node, Node) or node.op != 'linear' or len(bias.shape) > 1:
            raise Refused('a network that adds something else than a bias')
    if node.op == 'linear' and node.args[1].residency == SHARED:
        name = f'weight {len(stages)}'
        operands[name] = node.args[1]
        if bias is not None:
            operands[f'bias {len(stages)}'] = bias
        stages.append(Layer(name, None if bias is None else f'bias {len(stages)}'))
        return node.args[0]
    if node.op not in _NUMBERS or len(node.args) != 1:
        raise Refused(f'{node.op} of values that each edge has of its own')
    names = dict(_NUMBERS[node.op])
    if not set(node.attributes) <= set(names):
        raise Refused(f'{node.op} with these arguments')
    numbers = tuple(float(node.attributes.get(name, default)) for name, default in names.items())
    stages.append(Activation(node.op, numbers))
    return node.args[0]


def _terms(node: Node) -> list[tuple[bool, Node]] | None:
    """The terms of a sum of values of nodes, each with whether it is subtracted; None if it is none."""
    if node.residency in (SOURCE, TARGET, SHARED):
        return [(False, node)]
    if node.op not in ('add', 'sub') or not all(isinstance(argument, Node) for argument in node.args):
        return None
    first, second = (_terms(argument) for argument in node.args)
    if first is None or second is None:
        return None
    is_difference = node.op == 'sub'
    return [*first, *((negative != is_difference, term) for negative, term in second)]


def _ends(terms: list[tuple[bool, Node]], shape: tuple[int, ...]) -> dict[str, Node]:
    """The sums of the terms of sources and of targets."""
    if len(shape) != 1:
        raise Refused('a network of rows of several dimensions')
    found: dict[str, Any] = {}
    # shared terms last: they join the targets
    for negative, term in sorted(terms, key=lambda pair: pair[1].residency == SHARED):
        side = TARGET if term.residency == SHARED else term.residency
        if side not in found and (term.residency == SHARED or term.shape != shape):
            raise Refused('a network of one end of an edge')
        if side in found:
            found[side] = value('sub' if negative else 'add', found[side], term)
        else:
            found[side] = value('neg', term) if negative else term
    if len(found) != 2:
        raise Refused('a network of one end of an edge')
    return found
