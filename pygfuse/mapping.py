"""How workers share the edges: the cut of a graph's rows into parts.

Both mappings are cuts of the same line of edges, row after row. *Vertex-balanced* parts begin and end with rows, except
that a row of very many edges is cut; *edge-balanced* parts have equal numbers of edges wherever that cuts. A row that
lies in several parts leaves a partial result in each, and these are combined in the order of its edges. The cut follows
from the graph alone, so results do not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from pygfuse.csr import Csr

VERTEX, EDGE = 'vertex', 'edge'
MAPPINGS = (VERTEX, EDGE)

# edges and rows that make one part of the work, and the largest number of parts
PART_WORK = 4096
PARTS_LIMIT = 256
# vertex-balanced: a row is only cut if it alone holds so many parts' work
HEAVY_PARTS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Cut:
    """Parts of the edges of a `Csr`.

    Part p begins at row ``bounds[2 p]`` and edge ``bounds[2 p + 1]`` and ends where part p + 1 begins. A part has two
    slots for partial results: 2 p for a row that began before it, 2 p + 1 for one that ends after it.

    Attributes:
        bounds: First row and first edge of each part, and of the end, one after another, int64.
        split_rows: The rows that lie in several parts, int64.
        split_indptr: For each of them, where its slots begin in `slots`, and the end, int64.
        slots: Slots of the partial results, in the order of edges, int64.
    """

    bounds: Tensor
    split_rows: Tensor
    split_indptr: Tensor
    slots: Tensor

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.bounds) // 2 - 1

    @property
    def num_slots(self) -> int:
        """Number of slots that partial results need: none if no row is cut."""
        return 2 * self.count if len(self.split_rows) else 0


def cut(csr: Csr, mapping: str | None = None) -> Cut:
    """The parts of a graph's edges.

    Args:
        csr: The edges by row; the cut is kept with them.
        mapping: ``'vertex'`` or ``'edge'``; by default what `force_mapping` says, else what `choose` finds.
    """
    name = mapping or _forced.get() or choose(csr)
    found = csr.cuts.get(name)
    if found is None:
        found = csr.cuts[name] = make_cut(csr, default_count(csr), 0 if name == EDGE else None)
    return found


def default_count(csr: Csr) -> int:
    """The number of parts: it follows from the graph alone, not from the number of threads."""
    work = csr.num_edges + csr.num_rows
    return max(1, min(PARTS_LIMIT, -(-work // PART_WORK)))


def make_cut(csr: Csr, count: int, cut_above: int | None = None) -> Cut:
    """Cuts into parts of about equal work, an edge and a row counting alike.

    Args:
        csr: The edges by row.
        count: Number of parts; some may be empty.
        cut_above: Rows of more edges may be cut; by default those that hold `HEAVY_PARTS` parts' work.

    Example:
        >>> csr = Csr(torch.tensor([0, 6, 7, 8]), torch.zeros(8, dtype=torch.int64), None)
        >>> make_cut(csr, 2, cut_above=0).bounds
        tensor([0, 0, 0, 5, 3, 8])
    """
    if count < 1:
        raise ValueError(f"Expected 'count' to be at least 1 (got {count})")
    indptr = csr.indptr.to(torch.int64)
    total = csr.num_edges + csr.num_rows
    cut_above = HEAVY_PARTS * total // count if cut_above is None else cut_above
    work_before = indptr + torch.arange(csr.num_rows + 1)
    shares = torch.arange(count + 1) * total // count
    rows = torch.searchsorted(work_before, shares, right=True) - 1
    inside = shares - work_before[rows]
    degree = torch.diff(indptr, append=indptr[-1:])[rows]
    # a share that ends behind a row's last edge begins with the next row
    cuts = (degree > cut_above) & (inside > 0) & (inside < degree)
    rows = torch.where((inside > 0) & (inside >= degree) & (degree > cut_above), rows + 1, rows)
    rows = rows.clamp(max=csr.num_rows)
    rows[-1] = csr.num_rows
    cuts[-1] = False
    edges = indptr[rows] + torch.where(cuts, inside, 0)
    return Cut(torch.stack([rows, edges], dim=1).flatten(), *_splits(rows, cuts))


def _splits(rows: Tensor, cuts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that were cut and the slots of their pieces."""
    parts = cuts.nonzero().flatten()
    split_rows, pieces = torch.unique_consecutive(rows[parts], return_counts=True)
    indptr = torch.cat([pieces.new_zeros(1), (pieces + 1).cumsum(0)])
    slots = torch.empty(int(indptr[-1]), dtype=torch.int64)
    first = torch.zeros(len(slots), dtype=torch.bool)
    first[indptr[:-1]] = True
    slots[~first] = 2 * parts
    starts = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)[:-1]])[: len(pieces)]
    slots[first] = 2 * (parts[starts] - 1) + 1
    return split_rows, indptr, slots


def choose(csr: Csr) -> str:
    """The mapping for a graph when none is forced.

    On a CPU, parts that begin with rows save the combination of partial results and lose nothing, since heavy rows
    are cut there too.
    """
    return VERTEX


_forced: contextvars.ContextVar[str | None] = contextvars.ContextVar('pygfuse_mapping', default=None)


@contextlib.contextmanager
def force_mapping(name: str) -> Iterator[None]:
    """Forces a mapping for all walks of this thread within a ``with`` block, backward passes inside it included.

    Args:
        name: ``'vertex'`` or ``'edge'``.

    Raises:
        ValueError: If there is no such mapping.

    Example:
        >>> with force_mapping('edge'):
        ...     pass
    """
    if name not in MAPPINGS:
        raise ValueError(f"Expected 'name' to be one of {MAPPINGS} (got {name!r})")
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)
