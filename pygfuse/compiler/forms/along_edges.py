"""Values of edges that a program computes, a row for each edge."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse.compiler.forms.chunked import Chunked, chunked
from pygfuse.compiler.forms.lowering import Walk, lowered
from pygfuse.compiler.ir import positions
from pygfuse.compiler.ir.values import Node, leaf, value
from pygfuse.compiler.programs.emission import Factors
from pygfuse.compiler.refusal import Refused
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import why_no_edge_chunks
from pygfuse.ops.values_along_edges import has_values_along, values_along
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, EdgeProgram
from pygfuse.program.trace import CHANNELS


class ValuesCall(NamedTuple):
    """What computes the values beside edges and operands.

    Attributes:
        program: The values times a factor.
        factor: The name of that operand.
        heads, channels: Of the program.
        shape: Of an edge's values.
        others: What computes them where no walk does.
    """

    program: EdgeProgram
    factor: str
    heads: int
    channels: int
    shape: tuple[int, ...]
    others: Chunked

    def run(
        self, edges: Edges, operands: dict[str, Tensor | Product], of_others: dict[str, Tensor]
    ) -> tuple[None, Tensor]:
        """The values, in second place.

        Args:
            edges: The edges.
            operands, of_others: The operands by name, of the program and of `others`.
        """
        tensors = [part for v in operands.values() for part in (v if isinstance(v, Product) else (v,))]
        tensors = [tensor for tensor in tensors if tensor is not None]
        if not has_values_along(edges, tensors, self.heads, self.channels):
            return self.others.run(edges, of_others)
        out = values_along(self.program, self.factor, edges, operands, self.heads, self.channels)
        return None, out.view(out.shape[0], *self.shape)


@dataclasses.dataclass(frozen=True)
class AlongEdges:
    """Values of edges as a program.

    Attributes:
        walk: The walk of the sum of the values times a factor.
        factor: The name of that operand.
        text: The values, for people.
        others: The form that they have where no walk computes them.
        message: The values.
    """

    walk: Walk
    factor: str
    text: str
    others: Chunked
    message: Node

    reduction = None

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f'walk: values of edges, heads={self.walk.heads}, channels={self.walk.channels}'

    @property
    def num_summed(self) -> int:
        """How many numbers each value is a sum of."""
        return self.walk.heads * self.walk.channels // self.message.width

    @property
    def of_program(self) -> dict[str, Node | Factors]:
        """The values of the program's operands by name."""
        return {name: operand for name, operand in self.walk.operands.items() if name != self.factor}

    @property
    def operands(self) -> dict[str, Node | Factors]:
        """The values that it is computed of by name."""
        return {**self.of_program, **self.others.operands}

    @property
    def traced(self) -> tuple[EdgeProgram, str, int, int, int]:
        """What the operator of its values takes: the program, the factor, heads, channels and how many numbers."""
        walk = self.walk
        return walk.program, self.factor, walk.heads, walk.channels, self.message.width

    @property
    def call(self) -> ValuesCall:
        """What runs it."""
        walk = self.walk
        return ValuesCall(walk.program, self.factor, walk.heads, walk.channels, self.message.shape, self.others)

    def why_not(self, edges: Edges, dtype: torch.dtype) -> str | None:
        """The reason, if any, for which edges like these and values of a type have no such form."""
        return why_no_edge_chunks(dtype)


def along_edges(message: Node) -> AlongEdges:
    """The form of values of edges that a program computes.

    Raises:
        Refused: If none does.

    Example:
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> found = along_edges(value('relu', value('sub', x_i, x_j)))
        >>> print(found.title, found.text, sep='\\n')
        walk: values of edges, heads=1, channels=4
        def message(t0, s1):
            v0 = t0 - s1
            v1 = relu(v0)
            return v1
    """
    others, summed = chunked(message), _summed_over_channels(message)
    if summed is not None:
        return _sums_along_edges(message, summed, others)
    text = lowered(value('reduce', message, reduce='sum')).text
    factor = leaf('factor', EDGE, message.shape, message.dtype)
    walk = lowered(value('reduce', value('mul', message, factor), reduce='sum'))
    if walk.program.softmax or walk.dropout > 0.0:
        raise Refused('values of all edges of a target')
    for name, operand in walk.operands.items():
        # of one number for each edge or head it may be something else
        if operand is factor and walk.program.operands[name].level == CHANNELS:
            return AlongEdges(walk, name, text, others, message)
    raise Refused('values of edges that are no rows of channels')


def _summed_over_channels(message: Node) -> Node | None:
    """What is summed to give these values, in rows of channels for each number; None where they are no such sums."""
    while message.op == 'reshape':
        message = message.args[0]
    if message.op != 'sum' or message.args[0].residency != EDGE:
        return None
    places = positions.of_sum(message)
    heads, channels = places.shape
    is_in_order = channels > 1 and (places.reshape(-1) == range(heads * channels)).all()
    return value('reshape', message.args[0], shape=(heads, channels)) if is_in_order else None


def _sums_along_edges(message: Node, summed: Node, others: Chunked) -> AlongEdges:
    """The form of sums over channels: of a head, whose weight is the factor."""
    heads, _ = summed.shape
    factor = leaf('factor', EDGE, (heads, 1), message.dtype)
    walk = lowered(value('reduce', value('mul', summed, factor), reduce='sum'))
    for name, operand in walk.operands.items():
        if operand is factor and walk.program.operands[name].level != CHANNELS and walk.heads == heads:
            return AlongEdges(walk, name, walk.text, others, message)
    raise Refused('sums over channels that are no score')
