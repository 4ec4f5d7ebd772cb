"""How workers share the edges: the cut of a graph's rows into parts.

Both mappings are cuts of the same line of edges, row after row. *Vertex-balanced* parts begin and end with rows, except
that a row of very many edges is cut; *edge-balanced* parts have equal numbers of edges wherever that cuts. A row that
lies in several parts leaves a partial result in each, and these are combined in the order of its edges. The cut follows
from the graph alone, so results do not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools

import torch
from torch import Tensor

from pygfuse._lib.backends import cuts_of
from pygfuse._lib.memo import Memo
from pygfuse._lib.modes import changed, modes
from pygfuse.graph.coo import Coo
from pygfuse.graph.csr import Csr

VERTEX_BALANCED, EDGE_BALANCED, SCATTER = 'vertex', 'edge', 'scatter'
BALANCES = (VERTEX_BALANCED, EDGE_BALANCED, SCATTER)

# edges and rows that make one part of the work, and the largest number of parts
PART_WORK = 4096
PARTS_LIMIT = 256
# vertex-balanced: a row is only cut if it alone holds so many parts' work
HEAVY_PARTS = 2
# scattered: the largest number of parts
SCATTERED_PARTS_LIMIT = 8
# parts with copies of something small of each row: fewest and most, the largest size of a copy, and how much all take
# together where fewer than the most do
ADDING_PARTS = (16, 64)
ADDING_BYTES = 2**25
ADDING_BYTES_OF_ALL = 2**26


@dataclasses.dataclass(frozen=True)
class Mapping:
    """How workers share the edges of a graph.

    Attributes:
        balance: ``'vertex'``: parts begin and end with rows, except those of very many edges; ``'edge'``: parts have
            equal numbers of edges, wherever that cuts; ``'scatter'``: parts are ranges of edges in the order in which
            they came, so that a graph that is used once need not be sorted. Walks that need whole rows (softmax,
            maxima) and graphs that are sorted already are ``'vertex'`` instead.
        part_work: Edges and rows that make one part: what a thread of a CPU takes at a time.
        two_pass: Whether a softmax takes two walks (on a GPU two passes over each row's edges), its statistics first
            and then the sums, rather than one with a running maximum.

    Raises:
        ValueError: If there is no such mapping.

    Example:
        >>> Mapping('edge', part_work=1024)
        Mapping(balance='edge', part_work=1024, two_pass=False)
    """

    balance: str = VERTEX_BALANCED
    part_work: int = PART_WORK
    two_pass: bool = False

    def __post_init__(self) -> None:
        if self.balance not in BALANCES:
            raise ValueError(f"Expected 'balance' to be one of {BALANCES} (got {self.balance!r})")
        if self.part_work < 1:
            raise ValueError(f"Expected 'part_work' to be at least 1 (got {self.part_work})")


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
        memo: What a device derives from it.
    """

    bounds: Tensor
    split_rows: Tensor
    split_indptr: Tensor
    slots: Tensor
    memo: Memo = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'memo', Memo(self.bounds.device))

    @functools.cached_property
    def count(self) -> int:
        """Number of parts."""
        return len(self.bounds) // 2 - 1

    @functools.cached_property
    def num_slots(self) -> int:
        """Number of slots that partial results need: none if no row is cut."""
        return 2 * self.count if self.num_split_rows else 0

    @functools.cached_property
    def num_split_rows(self) -> int:
        """Number of rows that lie in several parts."""
        return self.split_rows.numel()


def cut(csr: Csr, mapping: Mapping = Mapping(), parts_limit: int = PARTS_LIMIT) -> Cut:
    """The parts of a graph's edges, kept with them.

    Args:
        csr: The edges by row.
        mapping: Whether rows may be cut, and how many edges and rows make a part.
        parts_limit: At most so many parts.
    """
    cut_above = 0 if mapping.balance == EDGE_BALANCED else None
    return csr.memo.get_or_make(
        ('cut', mapping.balance, mapping.part_work, parts_limit),
        lambda: make_cut(csr, default_count(csr, mapping.part_work, parts_limit), cut_above),
    )


def default_count(csr: Csr, part_work: int = PART_WORK, parts_limit: int = PARTS_LIMIT) -> int:
    """The number of parts: it follows from the graph alone, not from the number of threads."""
    work = csr.num_edges + csr.num_rows
    return max(1, min(parts_limit, -(-work // part_work)))


def scattered_bounds(coo: Coo) -> Tensor:
    """First edge of each part of edges in no order, and of the end, laid out as `Cut.bounds`."""
    count = scattered_count(coo.num_rows, coo.num_edges)
    edges = torch.arange(count + 1) * coo.num_edges // count
    return torch.stack([torch.zeros_like(edges), edges], dim=1).flatten()


def scattered_count(num_rows: int, num_edges: int) -> int:
    """The number of parts of edges in no order: each has a copy of all rows, so few that the edges outnumber these."""
    return max(1, min(SCATTERED_PARTS_LIMIT, num_edges // (4 * max(num_rows, 1))))


def copies_for_adding(csr: Csr, row_bytes: int) -> int:
    """In how many copies of all rows a walk by the other ends may add up something small of each row; 0 for none.

    There have to be enough for many workers, and they take less than half of what would be passed along the edges.
    Beyond a core's cache, too, adding to a copy is faster than reading what was passed at random places.

    Args:
        csr: The edges by the row that is added up.
        row_bytes: Bytes of what is added up of a row.
    """
    fewest, most = ADDING_PARTS
    copy_bytes = max(csr.num_rows * row_bytes, 1)
    copies = min(most, csr.num_edges // (2 * max(csr.num_rows, 1)), max(fewest, ADDING_BYTES_OF_ALL // copy_bytes))
    return copies if copies >= fewest and copy_bytes <= ADDING_BYTES else 0


def in_parts(csr: Csr, mapping: Mapping, count: int) -> Mapping:
    """The mapping with about `count` parts."""
    return dataclasses.replace(mapping, part_work=max(1, -(-(csr.num_edges + csr.num_rows) // count)))


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
    total, device = csr.num_edges + csr.num_rows, csr.indptr.device
    cut_above = HEAVY_PARTS * total // count if cut_above is None else cut_above
    if count == 1:
        return Cut(torch.tensor([0, 0, csr.num_rows, csr.num_edges], device=device), *_no_splits(device))
    kernels = cuts_of(device)
    if kernels is not None:
        return Cut(*kernels.cut(csr.indptr, count, cut_above))
    indptr = csr.indptr.to(torch.int64)
    work_before = indptr + torch.arange(csr.num_rows + 1, device=device)
    shares = torch.arange(count + 1, device=device) * total // count
    rows = torch.searchsorted(work_before, shares, right=True) - 1
    if csr.max_degree <= cut_above:
        rows[-1] = csr.num_rows
        return Cut(torch.stack([rows, indptr[rows]], dim=1).flatten(), *_no_splits(device))
    inside = shares - work_before[rows]
    degree = torch.diff(indptr, append=indptr[-1:])[rows]
    # a share that ends behind a row's last edge begins with the next row
    cuts = (degree > cut_above) & (inside > 0) & (inside < degree)
    rows = torch.where((inside > 0) & (inside >= degree) & (degree > cut_above), rows + 1, rows)
    rows = rows.clamp(max=csr.num_rows)
    rows[-1] = csr.num_rows
    cuts[-1] = False
    edges = indptr[rows] + torch.where(cuts, inside, 0)
    return Cut(torch.stack([rows, edges], dim=1).flatten(), *splits(rows, cuts))


@functools.cache
def _no_splits(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """What `splits` gives where no row is cut."""
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    return nothing, torch.zeros(1, dtype=torch.int64, device=device), nothing


def splits(rows: Tensor, cuts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows that were cut, and the slots of their pieces: see `Cut`.

    Args:
        rows: The row in which each part begins, and the end.
        cuts: For which of them a part begins inside the row.
    """
    parts = cuts.nonzero().flatten()
    split_rows, which, pieces = torch.unique_consecutive(rows[parts], return_inverse=True, return_counts=True)
    indptr = torch.cat([pieces.new_zeros(1), (pieces + 1).cumsum(0)])
    slots = torch.empty(len(parts) + len(split_rows), dtype=torch.int64, device=rows.device)
    # of each row one slot more, of the part that it begins in
    slots[torch.arange(len(parts), device=rows.device) + which + 1] = 2 * parts
    starts = pieces.cumsum(0) - pieces
    slots[indptr[:-1]] = 2 * (parts[starts] - 1) + 1
    return split_rows, indptr, slots


def forced() -> Mapping | None:
    """The mapping that `force_mapping` forces here, or None."""
    return modes().mapping


def force_mapping(mapping: str | Mapping) -> contextlib.AbstractContextManager[None]:
    """Forces a mapping for all walks of this thread within a ``with`` block, backward passes inside it included.

    On a GPU, where autograd runs backward in threads of its own, it holds for the backward passes of what ran forward
    within the block.

    Args:
        mapping: ``'vertex'``, ``'edge'`` or ``'scatter'``, or a `Mapping`.

    Raises:
        ValueError: If there is no such mapping.

    Example:
        >>> with force_mapping('edge'):
        ...     pass
        >>> with force_mapping(Mapping('edge', part_work=1024, two_pass=True)):
        ...     pass
    """
    return changed(mapping=mapping if isinstance(mapping, Mapping) else Mapping(mapping))
