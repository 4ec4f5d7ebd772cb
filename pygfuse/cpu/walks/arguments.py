"""What the CPU's walks take, see `pygfuse.codegen.arguments`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Arguments, Whole


class NumRows(NamedTuple):
    num_rows: int


class Settled(NamedTuple):
    """Rows whose states were carried from block to block, and how many of them make a part."""

    tiles: Tensor
    indptr: Tensor
    num_rows: int
    rows_a_part: int


class Weights(NamedTuple):
    statistics: Tensor | None
    result: Tensor


class RowsWalked(NamedTuple):
    """As `WalkedEdges`, with the node of each row; empty where row and node are the same."""

    tiles: Tensor
    bounds: Tensor
    rows: Tensor
    indptr: Tensor
    gathered: Tensor
    edge_id: Tensor | None


class Ends(NamedTuple):
    """Numbers of rows of either side, and of edges walked."""

    num_rows: int
    num_others: int
    num_walked: int


class Added(NamedTuple):
    """The copies of the other side's heads that parts add to."""

    grad_added: tuple[Tensor, ...]


class Panels(NamedTuple):
    """The weights by which gradients of features are multiplied, in panels (`pygfuse.cpu.vectors.panels`)."""

    panels: tuple[Tensor, ...]


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


_WALKED, _OPERANDS = Whole('walked', shared.WalkedEdges), Whole('operands', shared.Operands)
_RESULTS, _PARTIAL = Whole('results', shared.Results), Whole('partial', shared.PartialStates)
_LEFT, _OF_TARGETS = Whole('left', shared.SplitRows), Whole('of_targets', shared.OfTargets)
_GRADS = Whole('grads', shared.Gradients)

FORWARD = Arguments('part', _WALKED, _OPERANDS, shared.Row, NumRows, shared.Draws, _RESULTS, _PARTIAL)
COMBINE = Arguments('part', _LEFT, shared.RowPointer, shared.Row, _PARTIAL, _RESULTS)
SETTLE = Arguments('part', Whole('settled', Settled), shared.Row, _PARTIAL, _RESULTS)
WEIGHTS = Arguments('part', _WALKED, _OPERANDS, shared.Row, Weights)
BACKWARD = Arguments(
    *('part', Whole('walked', RowsWalked), _OPERANDS, shared.Row, Ends, shared.Draws),
    *(_OF_TARGETS, shared.KeptWeights, _GRADS, Added, Panels),
)
COMBINE_SUMS = Arguments('part', _LEFT, shared.Row, Whole('sums', Sums))
PASSED_SUM = Arguments('part', Whole('walked', Passed))
