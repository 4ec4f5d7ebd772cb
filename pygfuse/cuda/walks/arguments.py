"""What the walks on a GPU take, see `pygfuse.codegen.arguments`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Arguments


class Sizes(NamedTuple):
    """Numbers of features of products."""

    sizes: tuple[int, ...]


class Weights(NamedTuple):
    statistics: tuple[Tensor, ...]
    result: Tensor


class NumTiles(NamedTuple):
    num_tiles: int


FORWARD = Arguments(
    *('parts', shared.WalkedEdges, shared.Operands, Sizes, shared.Row, shared.Draws),
    *(shared.Results, shared.PartialStates),
)
COMBINE = Arguments('splits', shared.SplitRows, shared.RowPointer, shared.Row, shared.PartialStates, shared.Results)
WEIGHTS = Arguments('parts', shared.WalkedEdges, shared.Operands, Sizes, shared.Row, Weights)
BACKWARD = Arguments(
    *('parts', shared.WalkedEdges, shared.Operands, Sizes, shared.Row, NumTiles, shared.Draws),
    *(shared.OfTargets, shared.Gradients),
)
