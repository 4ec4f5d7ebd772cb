"""What the walks on a GPU take, see `pygfuse.codegen.arguments`."""

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


class Sizes(NamedTuple):
    """Numbers of features of products."""

    sizes: tuple[int, ...]


class Weights(NamedTuple):
    statistics: tuple[Tensor, ...]
    result: Tensor


class NumTiles(NamedTuple):
    num_tiles: int


FORWARD = Arguments('parts', WalkedEdges, Operands, Sizes, Row, Draws, Results, PartialStates)
COMBINE = Arguments('splits', SplitRows, RowPointer, Row, PartialStates, Results)
WEIGHTS = Arguments('parts', WalkedEdges, Operands, Sizes, Row, Weights)
BACKWARD = Arguments('parts', WalkedEdges, Operands, Sizes, Row, NumTiles, Draws, OfTargets, Gradients)
