"""What the CPU's walks take, see `pygfuse.codegen.arguments`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.codegen.arguments import (
    Arguments,
    Draws,
    Gradients,
    OfTargets,
    Operands,
    PartialStates,
    Results,
    Row,
    RowPointer,
    SplitRows,
    WalkedEdges,
)


class NumRows(NamedTuple):
    num_rows: int


class Weights(NamedTuple):
    statistics: Tensor | None
    result: Tensor


class RowsWalked(NamedTuple):
    """As `WalkedEdges`, with the node of each row; empty where row and node are the same."""

    tiles: Tensor
    bounds: Tensor
    rows: Tensor
    indptr: Tensor
    index: Tensor
    edge_id: Tensor | None


class Ends(NamedTuple):
    """Numbers of rows of either side, and of edges walked."""

    num_rows: int
    num_others: int
    num_walked: int


class KeptWeights(NamedTuple):
    edge_alpha: Tensor | None


class Added(NamedTuple):
    """The copies of the other side's heads that parts add to."""

    grad_added: tuple[Tensor, ...]


class Sums(NamedTuple):
    """Partial sums, and the rows that they are added up in."""

    partial_heads: tuple[Tensor, ...]
    partial_rows: tuple[Tensor, ...]
    heads: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]


class Passed(NamedTuple):
    """What a walk passed along its edges, where it wrote each edge's, and the sums of it."""

    tiles: Tensor
    bounds: Tensor
    rows: Tensor
    indptr: Tensor
    position: Tensor
    total_heads: int
    num_walked: int
    passed: Tensor
    grad_heads: Tensor
    partial_heads: Tensor


FORWARD = Arguments('part', WalkedEdges, Operands, Row, NumRows, Draws, Results, PartialStates)
COMBINE = Arguments('part', SplitRows, RowPointer, Row, PartialStates, Results)
WEIGHTS = Arguments('part', WalkedEdges, Operands, Row, Weights)
BACKWARD = Arguments('part', RowsWalked, Operands, Row, Ends, Draws, OfTargets, KeptWeights, Gradients, Added)
COMBINE_SUMS = Arguments('part', SplitRows, Row, Sums)
PASSED_SUM = Arguments('part', Passed)
