"""Edges by source of which nothing is kept that can be found again from those by target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from pygfuse.graph.csr import Csr


class Transposed(Csr):
    """Many edges by source: a sort gives their index and positions again, so that neither has to be kept.

    Most walks know no edge from another and do without positions. Walks of many edges take them in blocks, which hold
    the index once more.

    Args:
        indptr, index: As of a `Csr`.
        edge_id: The user's number of each edge in the order by target; None where it is the place itself.
        again: Gives the index and the positions.
    """

    def __init__(
        self, indptr: Tensor, index: Tensor, edge_id: Tensor | None, again: Callable[[], tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__(indptr, index, edge_id)
        self._again, self._num_edges = again, index.numel()

    @property
    def num_edges(self) -> int:
        return self._num_edges

    @property
    def index(self) -> Tensor:
        # another thread may forget it meanwhile
        found = self._index
        if found is None:
            found = self._index = self._again()[0]
        return found

    @index.setter
    def index(self, index: Tensor) -> None:
        self._index = index

    @property
    def position(self) -> Tensor:
        if self._position is None:
            self._position = self._again()[1]
        return self._position

    @position.setter
    def position(self, position: Tensor | None) -> None:
        self._position = position

    def forget_index(self) -> None:
        self._index = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Csr, (self.indptr, self.index, self._edge_id, self.position)
