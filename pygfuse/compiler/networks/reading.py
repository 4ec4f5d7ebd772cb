"""The reading of messages as networks: stages are taken off a value, from the last to the sum of both ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, is_brought, value
from pygfuse.compiler.networks.network import Batch, Dropped, Factor, Layer, Matrix, Network, Norm, Stage, Term
from pygfuse.compiler.refusal import Refused
from pygfuse.program.activation import SELU, Activation

# an activation's arguments, each with what it is where nobody gives it
ACTIVATIONS: dict[str, tuple[tuple[str, float], ...]] = {
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
        >>> from pygfuse.compiler.ir.values import leaf
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
    if reduction is not None and reduction.attributes['reduce'] == 'max' and _has_factor(reader.stages):
        raise Refused('a maximum of products, which tie where a factor is zero')
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
        if node.op == 'own_matrix':
            return self._without_matrix(node)
        if node.op == 'mul':
            return self._without_factor(node)
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

    def _without_factor(self, node: Node) -> Node:
        """What is left of a product after a factor of sources or of features of edges, which is a stage."""
        first, second = node.args
        if not isinstance(first, Node) or not isinstance(second, Node):
            raise Refused('a network that multiplies with a number')
        for factor, other in ((first, second), (second, first)):
            factors = _factors_of(factor, node.shape) if other.shape == node.shape else None
            if factors is not None:
                for one in factors:
                    self._multiply(one)
                return other
        raise Refused('a network that multiplies with something else than sources or features of edges')

    def _multiply(self, factor: Node) -> None:
        """Adds the stage of one factor."""
        if factor.op == 'dropout_factor':
            marks, draws = factor.args
            self.stages.append(Dropped(self._named('features', marks), self._named('draws', draws)))
        elif factor.residency == SOURCE:
            self.stages.append(Factor(source=self._named('factor', factor)))
        else:
            features, _ = _features(factor)
            self.stages.append(Factor(features=self._named('features', features)))

    def _without_matrix(self, node: Node) -> Node:
        """The numbers of which a matrix of each edge's own is made, by which its source is multiplied in a stage."""
        x, numbers, weight, bias = node.args
        if x.residency != SOURCE or self.stages:
            raise Refused('a matrix of each edge of its own before other stages')
        names = self._named('multiplied', x), self._named('weight', weight), self._named('bias', bias)
        self.stages.append(Matrix(*names))
        return numbers

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
        if inner is None or (weight is None and constant is not None):
            raise Refused('a network of neither ends nor features of edges')
        self.operands['features'] = inner
        if weight is not None:
            self.stages.append(Layer(self._named('weight', weight), self._named('bias', constant)))


def _has_map(stage: Stage) -> bool:
    """Whether a stage reads other values than each one by itself."""
    return isinstance(stage, (Layer, Norm, Batch, Matrix)) or (isinstance(stage, Term) and stage.weight is not None)


def _has_factor(stages: Sequence[Stage]) -> bool:
    return any(isinstance(stage, Factor) for stage in stages)


def _features(node: Node) -> tuple[Node, Node | None] | None:
    """The features that a call brings for each edge, and the weight of a map of them; None for another value."""
    weight = None
    while node.op == 'linear' and node.args[1].residency == SHARED:
        node, inner = node.args
        if weight is None:
            weight = inner
        elif not _are_one(weight, inner):
            return None
        else:
            weight = value('call', weight, inner, function=torch.matmul, keywords=())
    width = node.width
    while node.op == 'reshape':
        (node,) = node.args
    is_row = len(node.shape) == 1 or (node.shape == () and width == 1)
    return (node, weight) if node.residency == EDGE and is_brought(node) and is_row else None


def _factors_of(node: Node, shape: tuple[int, ...]) -> list[Node] | None:
    """What a value is a product of, where a network's values of a shape may be multiplied with each; None elsewhere."""
    if node.op == 'dropout_factor' or (node.residency == SOURCE and node.shape == shape):
        return [node]
    features = _features(node)
    if features is not None:
        return [node] if features[1] is None and node.shape in (shape, (1,)) else None
    if node.op != 'mul' or not all(isinstance(x, Node) for x in node.args):
        return None
    parts = [_factors_of(x, shape) for x in node.args]
    return None if None in parts else [*parts[0], *parts[1]]


def _are_one(outer: Node, inner: Node) -> bool:
    """Whether a map of a map is one that takes no more products than both."""
    (wide, between), features = outer.shape, inner.shape[1]
    return wide * features <= between * (wide + features)


def _activation(node: Node) -> Activation:
    if node.op not in ACTIVATIONS or len(node.args) != 1:
        raise Refused(f'{node.op} of values that each edge has of its own')
    names = dict(ACTIVATIONS[node.op])
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
    if node.op == 'on_edges':
        (node,) = node.args
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
