"""One use of an edge program on a graph: what a backend is asked to compute."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from pygfuse.graph.graph import Graph
from pygfuse.program.products import Product, tensors_in
from pygfuse.program.program import BoundProgram


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout of an edge's weight, drawn from a counter.

    Attributes:
        probability: Of dropping, in [0, 1].
        seed: A 64-bit number, on a GPU in a tensor there; with the edge's id and the head it decides each draw.
    """

    probability: float
    seed: int | Tensor


@dataclasses.dataclass(eq=False)
class Call:
    """A program with its operands.

    Attributes:
        bound: The program, bound to the operands that are there.
        graph: The edges.
        tensors: The operands by name, contiguous, of one floating type (on a GPU narrow ones may meet float32):
            ``[rows, H]`` for heads, ``[rows, H * C]`` for channels, where rows are the nodes of the operand's side, the
            edge ids, or one for a parameter.
        products: Channels of edges that are given as features ``[edge ids, D]`` times a weight ``[D, H * C]``, by name.
        scalars: The numbers by name.
        heads: H.
        channels: C.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'`` over the edges of a row; nothing at all gives 0.
        dropout: Dropout of the weights, or None.
        weights: For an adjoint: the weights of edges before dropout that forward kept, ``[edge ids, H]``, or None where
            they are computed again.
        like: Any operand: what new tensors take their type and device from.
        width: Values in a row of channels.
        row_bytes: Bytes of a row of channels.
    """

    bound: BoundProgram
    graph: Graph
    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, float]
    heads: int
    channels: int
    reduce: str = 'sum'
    dropout: Dropout | None = None
    weights: Tensor | None = None
    products: Mapping[str, Product] = dataclasses.field(default_factory=dict)

    like: Tensor = dataclasses.field(init=False)
    width: int = dataclasses.field(init=False)
    row_bytes: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        tensors = self.tensors
        self.like = next(iter(tensors.values())) if tensors else next(iter(self.products.values())).features
        self.width = self.heads * self.channels
        self.row_bytes = self.width * self.like.element_size()

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """The type of the output."""
        return common_dtype((*self.tensors.values(), *tensors_in(self.products)))


def common_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """The type in which tensors meet."""
    return functools.reduce(torch.promote_types, (tensor.dtype for tensor in tensors))


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type of a call's statistics, and of sums over edges: at least float32."""
    return torch.promote_types(dtype, torch.float32)
