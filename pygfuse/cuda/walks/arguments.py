"""What the walks on a GPU take, see `pygfuse.codegen.arguments`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.codegen.arguments import (
    Arguments,
    Draws,
    OfTargets,
    PartialStates,
    Results,
    Row,
    RowPointer,
    SplitRows,
    WalkedEdges,
)


class Operands(NamedTuple):
    """The operands of a call, as a walk by rows of one side takes them; `sizes` are numbers of features of products."""

    resident_heads: tuple[Tensor, ...]
    resident_channels: tuple[Tensor, ...]
    gathered_heads: tuple[Tensor, ...]
    gathered_channels: tuple[Tensor, ...]
    edge_heads: tuple[Tensor, ...]
    edge_scalars: tuple[Tensor, ...]
    edge_rows: tuple[Tensor, ...]
    edge_features: tuple[Tensor, ...]
    edge_weights: tuple[Tensor, ...]
    sizes: tuple[int, ...]
    parameter_heads: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...]
    scalars: tuple[float, ...]


class Weights(NamedTuple):
    statistics: tuple[Tensor, ...]
    result: Tensor


class NumTiles(NamedTuple):
    num_tiles: int


class Gradients(NamedTuple):
    """Where the adjoint writes, see `BackwardPlan`."""

    grad_heads: tuple[Tensor, ...]
    grad_channels: tuple[Tensor, ...]
    grad_edges: tuple[Tensor, ...]
    grad_edge_rows: tuple[Tensor, ...]
    grad_weights: tuple[Tensor, ...]
    grad_features: tuple[Tensor, ...]
    grad_passed: tuple[Tensor, ...]
    grad_parameters: tuple[Tensor, ...]
    grad_edge_scalars: tuple[Tensor, ...]
    grad_parameter_heads: tuple[Tensor, ...]
    partial_heads: tuple[Tensor, ...]
    partial_rows: tuple[Tensor, ...]


FORWARD = Arguments('parts', WalkedEdges, Operands, Row, Draws, Results, PartialStates)
COMBINE = Arguments('splits', SplitRows, RowPointer, Row, PartialStates, Results)
WEIGHTS = Arguments('parts', WalkedEdges, Operands, Row, Weights)
BACKWARD = Arguments('parts', WalkedEdges, Operands, Row, NumTiles, Draws, OfTargets, Gradients)
