"""Networks on edges that are so few that they are taken as they come (`pygfuse.mapping.few_edges`)."""

from __future__ import annotations

import dataclasses
import functools

import torch

from pygfuse._lib.memo import Memo
from pygfuse.program.activation import Activation


@dataclasses.dataclass(frozen=True)
class FewEdgeNetwork:
    """What happens on an edge (j, i): ``stages(first(x_i, x_j - x_i))``, reduced by target.

    Attributes:
        width: Features of a node.
        hidden: Values after the first linear map.
        stages: Linear maps, each by the number of its results, and activations.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.
        dtype: Of all tensors.
        shared: Whether sources and targets are the same nodes.
        biased: Which of the linear maps have a bias, the first among them.
        memo: What is derived from it.

    Example:
        >>> network = FewEdgeNetwork(3, 8, (Activation('relu'), 4), 'max', torch.float32, True, (True, True))
        >>> network.widths, network.products
        ((8, 8, 4), (32, 24))
    """

    width: int
    hidden: int
    stages: tuple[int | Activation, ...]
    reduce: str
    dtype: torch.dtype
    shared: bool
    biased: tuple[bool, ...]
    memo: Memo = dataclasses.field(default_factory=Memo, compare=False, repr=False)

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """Values of an edge before the stages and after each."""
        found = [self.hidden]
        for stage in self.stages:
            found.append(found[-1] if isinstance(stage, Activation) else stage)
        return tuple(found)

    @property
    def held(self) -> int:
        """How many numbers of an edge lie in memory at one time: its values, and the gradient of the last."""
        return sum(self.widths) + self.widths[-1]

    @property
    def products(self) -> tuple[int, int]:
        """How many numbers are multiplied for an edge, and for a node on either side."""
        pairs = zip(self.stages, self.widths, self.widths[1:], strict=False)
        of_edge = sum(before * after for stage, before, after in pairs if not isinstance(stage, Activation))
        return of_edge, self.width * self.hidden
