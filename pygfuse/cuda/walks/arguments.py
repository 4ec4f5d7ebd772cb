"""What the walks on a GPU take, see `pygfuse.codegen.arguments`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.codegen import arguments as shared
from pygfuse.codegen.arguments import Arguments, Whole


class Sizes(NamedTuple):
    """Numbers of features of products."""

    sizes: tuple[int, ...]


class Weights(NamedTuple):
    statistics: tuple[Tensor, ...]
    result: Tensor


class NumTiles(NamedTuple):
    num_tiles: int


_WALKED, _OPERANDS = Whole('walked', shared.WalkedEdges), Whole('operands', shared.Operands)
_RESULTS, _PARTIAL = Whole('results', shared.Results), Whole('partial', shared.PartialStates)
_LEFT, _OF_TARGETS = Whole('left', shared.SplitRows), Whole('of_targets', shared.OfTargets)
_GRADS = Whole('grads', shared.Gradients)

FORWARD = Arguments('parts', _WALKED, _OPERANDS, Sizes, shared.Row, shared.Draws, _RESULTS, _PARTIAL)
COMBINE = Arguments('splits', _LEFT, shared.RowPointer, shared.Row, _PARTIAL, _RESULTS)
FOLD = Arguments('runs', _LEFT, shared.Row, _PARTIAL)
WEIGHTS = Arguments('parts', _WALKED, _OPERANDS, Sizes, shared.Row, Weights)
BACKWARD = Arguments(
    *('parts', _WALKED, _OPERANDS, Sizes, shared.Row, NumTiles, shared.Draws),
    *(_OF_TARGETS, shared.KeptWeights, _GRADS),
)
