"""A reduction weighed by a softmax that is returned or stored as well: one walk gives both."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse.compiler.forms.lowering import Walk, WalkArguments, lowered, softmaxes_in
from pygfuse.compiler.ir.values import EDGE, Node, in_order, is_brought, results_of
from pygfuse.compiler.programs.emission import Factors
from pygfuse.compiler.refusal import Refused
from pygfuse.ops import Edges, aggregate_with_weights, new_seed
from pygfuse.ops.edge_mlp import why_no_edge_chunks
from pygfuse.program.products import Product

# by which a plan is told to leave it out, as passes are
RETURNED_WEIGHTS = 'returned_weights'


class WeighedCall(NamedTuple):
    """What computes both beside edges and operands.

    Attributes:
        walk: The walk's arguments.
        shape, weight_shape: Of a row of the result, and of an edge's weights.
    """

    walk: WalkArguments
    shape: tuple[int, ...]
    weight_shape: tuple[int, ...]

    def run(self, edges: Edges, operands: dict[str, Tensor | Product]) -> tuple[Tensor, Tensor]:
        """The reduction, and the weights before dropout."""
        seed = None
        if self.walk.dropout > 0.0:
            seed = new_seed(next(value for value in operands.values() if isinstance(value, Tensor)))
        program, *form = self.walk
        out, weights = aggregate_with_weights(program, edges, operands, *form, seed)
        return out.view(out.shape[0], *self.shape), weights.view(weights.shape[0], *self.weight_shape)


@dataclasses.dataclass(frozen=True)
class Weighed:
    """A walk with a softmax, and its weights.

    Attributes:
        walk: The walk.
        reduction: The value of the reduction.
        weights: The value of the weights.
    """

    walk: Walk
    reduction: Node
    weights: Node

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f'{self.walk.title}, which are returned'

    @property
    def text(self) -> str:
        """The program's functions, for people."""
        return self.walk.text

    @property
    def operands(self) -> dict[str, Node | Factors]:
        """The values of its operands by name."""
        return self.walk.operands

    @property
    def message(self) -> Node:
        """What is reduced."""
        return self.walk.message

    @property
    def call(self) -> WeighedCall:
        """What runs it."""
        return WeighedCall(self.walk.arguments, self.reduction.shape, self.weights.shape)

    def why_not(self, edges: Edges, dtype: torch.dtype) -> str | None:
        """The reason, if any, for which edges like these and values of a type have no such form."""
        return why_no_edge_chunks(dtype)


def weighed_of(output: Node) -> dict[int, Weighed]:
    """The forms of reductions and of their weights, by the identity of the value, where all values of edges that are
    returned or stored are weights.

    Args:
        output: The results of a layer.

    Raises:
        Refused: If others are, or none.

    Example:
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> score, x_j = leaf('a_j', 'edge', (1,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> weight = value('softmax', score)
        >>> out = value('reduce', value('mul', weight, x_j), reduce='sum')
        >>> [form.title for form in weighed_of(value('results', out, weight)).values()][0]
        'walk: sum, heads=1, channels=4, weights by softmax, which are returned'
    """
    found: dict[int, Weighed] = {}
    returned = [node for node in results_of(output) if node.residency == EDGE and not is_brought(node)]
    reductions = [node for node in in_order(output) if node.op == 'reduce']
    for weights in returned:
        softmax = _looked_through(weights)
        of_softmax = [node for node in reductions if softmax in softmaxes_in(node.args[0]) and id(node) not in found]
        if softmax.op != 'softmax' or not of_softmax:
            raise Refused('values of edges that are no weights of a reduction')
        (reduction, *_) = of_softmax
        walk = lowered(reduction)
        is_weight = walk.program.softmax and softmax.width == walk.heads
        if not is_weight or len(softmaxes_in(reduction.args[0])) > 1:
            raise Refused('a softmax that is no weight of a program')
        form = Weighed(walk, reduction, weights)
        found |= {id(reduction): form, id(weights): form}
    if not found:
        raise Refused('no values of edges are returned')
    return found


def _looked_through(node: Node) -> Node:
    """What a value has another shape of."""
    while node.op == 'reshape':
        node = node.args[0]
    return node
