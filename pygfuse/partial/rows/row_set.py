"""Some of the rows of node tensors, and the part of a graph that computes them from their neighbours."""

from __future__ import annotations

import collections
import weakref

import torch
from torch import Tensor

from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph

# above this share of the rows, all are computed: choosing them costs more than it saves
NEARLY_ALL = 0.75


class RowSet:
    """Rows of a tensor, at least one not among them; all rows are None instead.

    What follows from it (the neighbours it needs, its union with others) is computed once and kept with it, outside of
    inference mode: autograd cannot save what is made there, and training may ask for it later.

    Attributes:
        index: The rows, ascending, int64.
        total: How many rows there are.
    """

    def __init__(self, index: Tensor, total: int) -> None:
        self.index = index
        self.total = total
        # what `learn` was told last
        self._gain: float | None = None
        self._layers: tuple[weakref.ref, ...] = ()
        self._places: weakref.WeakKeyDictionary[RowSet, Tensor] = weakref.WeakKeyDictionary()
        self._unions: weakref.WeakKeyDictionary[RowSet, RowSet | None] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        return self.index.numel()

    @staticmethod
    def of(rows: Tensor, total: int) -> RowSet | None:
        """The rows that a mask or an index names, the same object as long as that tensor lives unchanged.

        Args:
            rows: ``[total]``, bool, or numbers of rows in any order, int64, from ``-total``.
            total: How many rows there are.

        Raises:
            IndexError: If a number is out of range.
        """
        key = ('rows', total)
        found = ATTACHED.get(rows, key)
        if found is None:
            state = state_of(rows)
            with torch.inference_mode(False):
                found = ATTACHED.keep(rows, key, state, (_rows_of(rows, total),))
        return found[0]

    @property
    def costs_more(self) -> bool:
        """Whether computing all rows is known to take less, of a model that still lives."""
        return self._is_known() and self._gain < 0.0

    def learn(self, gain: float, layers: tuple[weakref.ref, ...]) -> None:
        """Notes what computing these in place of all rows gained; of several readings, the one that gained most counts.

        Args:
            gain: In ns of one worker.
            layers: The notes of the layers that were asked; another model may gain where this one does not.
        """
        self._gain, self._layers = max(gain, self._gain) if self._is_known() else gain, layers

    def _is_known(self) -> bool:
        return self._gain is not None and all(layer() is not None for layer in self._layers)

    def places_in(self, other: RowSet) -> Tensor:
        """Where each row is among those of another set, which has them all."""
        found = self._places.get(other)
        if found is None:
            with torch.inference_mode(False):
                found = self._places[other] = torch.searchsorted(other.index, self.index)
        return found

    def is_within(self, other: RowSet) -> bool:
        """Whether another set has all rows of this one."""
        if self is other:
            return True
        places = torch.searchsorted(other.index, self.index)
        inside = places < len(other)
        return bool(inside.all()) and bool((other.index[places] == self.index).all())

    def union(self, other: RowSet) -> RowSet | None:
        """The rows of both; where one has all rows of the other, that very set."""
        if other is self:
            return self
        if other not in self._unions:
            larger, smaller = (self, other) if len(self) >= len(other) else (other, self)
            found = larger
            if not smaller.is_within(larger):
                with torch.inference_mode(False):
                    found = _unless_nearly_all(torch.cat([self.index, other.index]).unique(), self.total)
            self._unions[other] = found
        return self._unions[other]

    def part_of(self, graph: Graph) -> tuple[Graph, RowSet | None]:
        """The edges of a graph into these targets, and the sources that these have.

        The edges keep their ids, and those of a target their order. Targets are numbered by their place in the set,
        sources by theirs in the second result; where that is None, as before.
        """
        parts = graph.memo.get_or_make(('parts of rows',), weakref.WeakKeyDictionary)
        found = parts.get(self)
        if found is None:
            with torch.inference_mode(False):
                found = parts[self] = self._cut_out(graph)
        return found

    def _cut_out(self, graph: Graph) -> tuple[Graph, RowSet | None]:
        csr = graph.csr
        first, degree = csr.indptr[self.index], csr.indptr.diff()[self.index]
        indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0, dtype=degree.dtype)])
        count = int(indptr[-1])
        places = torch.arange(count, device=degree.device, dtype=degree.dtype)
        places += (first - indptr[:-1]).repeat_interleave(degree, output_size=count)
        index, ids = csr.index[places], places if csr.edge_id is None else csr.edge_id[places]
        has = torch.zeros(graph.num_sources, dtype=torch.bool, device=index.device)
        has[index] = True
        sources = _unless_nearly_all(has.nonzero().flatten(), graph.num_sources)
        if sources is not None:
            index = (has.cumsum(0, dtype=index.dtype) - 1)[index]
        return graph.part(indptr, index, ids, graph.num_sources if sources is None else len(sources)), sources


# sets that were asked for last: a tensor that is made anew in each step names the same rows
_recent: collections.deque[RowSet] = collections.deque(maxlen=8)


def _unless_nearly_all(index: Tensor, total: int) -> RowSet | None:
    return RowSet(index, total) if len(index) < NEARLY_ALL * total else None


def _rows_of(rows: Tensor, total: int) -> RowSet | None:
    if rows.dtype == torch.bool:
        index = rows.nonzero().flatten()
    else:
        index = torch.where(rows < 0, rows + total, rows).unique()
        if index.numel() and not 0 <= int(index[0]) <= int(index[-1]) < total:
            wrong = int(rows[(rows < -total) | (rows >= total)][0])
            raise IndexError(f'index {wrong} is out of bounds for dimension 0 with size {total}')
    if len(index) == total:
        return None
    for known in tuple(_recent):
        if known.total == total and known.index.device == index.device and torch.equal(known.index, index):
            return known
    _recent.append(RowSet(index, total))
    return _recent[-1]


def joined(one: RowSet | None, other: RowSet | None) -> RowSet | None:
    """The rows of both; None stands for all."""
    return None if one is None or other is None else one.union(other)


def chosen(values: Tensor, have: RowSet | None, want: RowSet | None) -> Tensor:
    """Some of the rows that were computed.

    Args:
        values: A row for each of `have`.
        have: The rows that were computed, among them those of `want`; None for all.
        want: The rows to choose.
    """
    if want is have:
        return values
    return values.index_select(0, want.index if have is None else want.places_in(have))
