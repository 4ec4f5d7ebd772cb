"""Kernels that find the rows where gradients are, and cut the edges that lead there out of a graph.

Masks are tensors of uint8, 1 for what is active.
"""

from __future__ import annotations

import array
import functools

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.nodes.rows import zeros
from pygfuse.cpu.nodes.zero_rows import line_of, looks
from pygfuse.cpu.vectors.memory import numbers_at, place_at
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import default_count, make_cut
from pygfuse.partial.paths.path import UNREACHED

# rows that one part looks at, and the most values of a row that are looked at together
_ROWS, _VALUES = 4096, 16
# nobody waits for a look but its caller
SYNCHRONISES = False
_AS_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


@functools.lru_cache
def _find_rows_kernel(values: int, bits_dtype: torch.dtype) -> Kernel:
    """The search in rows of at least so many values, which it looks at so many at a time; the last may overlap those
    before. So their number is known when it is compiled, and they are one vector."""
    # all bits but the sign, which a zero may have
    magnitude = torch.iinfo(bits_dtype).max

    def find_rows(part, bits, width, indptr, active, counts):
        rows, edges = 0, 0
        for v in range(part * _ROWS, min(len(active), (part + 1) * _ROWS)):
            begin, last, found = v * width, (v + 1) * width - values, place_at(bits, v * width) & magnitude
            while found == 0:
                for i in range(begin, begin + values):
                    found |= place_at(bits, i) & magnitude
                if begin == last:
                    break
                begin = min(begin + values, last)
            is_active = found != 0
            active[v] = is_active
            rows += is_active
            edges += is_active * (place_at(indptr, v + 1) - place_at(indptr, v))
        counts[2 * part] = rows
        counts[2 * part + 1] = edges

    return Kernel(find_rows, 'the search for rows that are not zero', (str(values), str(bits_dtype)))


@functools.cache
def _last_row_kernel(dtype: torch.dtype) -> Kernel:
    line = line_of(ELEMENT_TYPES[dtype])
    (are_zero, _), number_at = looks(line), numbers_at(ELEMENT_TYPES[torch.int64])

    def count(part, values, width, address):
        row = len(values) // width
        while row > 0:
            if not are_zero(values, row - 1, row, width, 0, width):
                break
            row -= 1
        number_at(address)[0] = row

    return Kernel(count, f'the last row that is not zero, {line.element}', (str(line.row),))


def _count_sampled(part, bits, width, rows, magnitude, counts):
    """The number of the given rows that are not zero."""
    count = 0
    for k in range(len(rows)):
        found, begin = 0, place_at(rows, k) * width
        for i in range(begin, begin + width):
            found |= place_at(bits, i) & magnitude
        count += found != 0
    counts[part] = count


def _count_columns(part, bounds, indptr, index, active, counts):
    """For each row of one part, the number of edges from active columns."""
    for row in range(bounds[2 * part], bounds[2 * part + 2]):
        count = 0
        for q in range(place_at(indptr, row), place_at(indptr, row + 1)):
            count += place_at(active, place_at(index, q))
        counts[row + 1] = count


def _put_columns(part, bounds, indptr, index, edge_id, active, kept_indptr, kept_index, kept_id):
    """Moves the edges of one part of the rows that come from active columns together."""
    first, last = bounds[2 * part], bounds[2 * part + 2]
    place, limit = place_at(kept_indptr, first), place_at(kept_indptr, last)
    # no branch on what is active: an edge that is not kept is written over by the next one
    for q in range(place_at(indptr, first), place_at(indptr, last)):
        if place >= limit:
            break
        column = place_at(index, q)
        kept_index[place] = column
        kept_id[place] = place_at(edge_id, q)
        place += place_at(active, column)


def _put_rows(part, bounds, indptr, index, edge_id, active, kept_indptr, kept_index, kept_id):
    """Moves the edges of active rows of one part together."""
    for row in range(bounds[2 * part], bounds[2 * part + 2]):
        if active[row]:
            begin = place_at(indptr, row)
            ahead = begin - place_at(kept_indptr, row)
            for q in range(begin, place_at(indptr, row + 1)):
                kept_index[q - ahead] = place_at(index, q)
                kept_id[q - ahead] = place_at(edge_id, q)


def _reach(part, bounds, indptr, index, distance, step):
    """Gives the sources of edges into targets at `step` the distance ``step + 1``, if they have none yet.

    Parts may write the same value to the same source; none of them reads it for anything but whether it is there.
    """
    for target in range(bounds[2 * part], bounds[2 * part + 2]):
        if distance[target] == step:
            for q in range(place_at(indptr, target), place_at(indptr, target + 1)):
                source = place_at(index, q)
                if distance[source] == UNREACHED:
                    distance[source] = step + 1


count_sampled = Kernel(_count_sampled, 'the count of sampled rows that are not zero')
count_columns = Kernel(_count_columns, 'the count of edges from active columns')
put_columns = Kernel(_put_columns, 'the choice of edges from active columns')
put_rows = Kernel(_put_rows, 'the choice of edges of active rows')
reach = Kernel(_reach, 'a step against the edges')


def active_rows(values: Tensor, indptr: Tensor | None) -> tuple[Tensor, int, int]:
    """The rows that are not all zero (NaN is not zero), their number, and the number of their edges.

    Args:
        values: ``[rows, width]``, float32 or float64, contiguous, width at least 1.
        indptr: Where the edges of each row begin, and the end; None for one edge a row.

    Example:
        >>> values = torch.tensor([[0.0, 1.0], [0.0, -0.0], [0.0, float('nan')]])
        >>> active_rows(values, torch.tensor([0, 3, 5, 9]))
        (tensor([1, 0, 1], dtype=torch.uint8), 2, 7)
    """
    rows, width = values.shape
    active = torch.empty(rows, dtype=torch.uint8)
    parts = -(-rows // _ROWS)
    counts = torch.empty(2 * parts, dtype=torch.int64)
    at_a_time = min(_VALUES, 1 << (width.bit_length() - 1))
    bits_dtype = _AS_INTEGERS[values.dtype]
    _find_rows_kernel(at_a_time, bits_dtype)(parts, values.view(bits_dtype), width, indptr, active, counts)
    num_rows, num_edges = counts.view(-1, 2).sum(0).tolist()
    return active, num_rows, num_edges


def leading_rows(values: Tensor) -> int:
    """The number of rows up to the last one that is not all zero (NaN is not zero).

    Args:
        values: ``[rows, width]``, float32 or float64, contiguous.

    Example:
        >>> leading_rows(torch.tensor([[0.0, 1.0], [0.0, -0.0], [0.0, float('nan')], [0.0, 0.0]]))
        3
    """
    found = array.array('q', (0,))
    _last_row_kernel(values.dtype)(1, values, values.shape[1], found.buffer_info()[0])
    return found[0]


def active_share(values: Tensor, rows: Tensor) -> float:
    """Which share of some rows are not all zero (NaN is not zero).

    Args:
        values: ``[rows, width]``, float32 or float64, contiguous.
        rows: Numbers of rows, at least one.

    Example:
        >>> active_share(torch.tensor([[0.0], [2.0], [-0.0]]), torch.tensor([0, 1, 1, 2]))
        0.5
    """
    count = torch.empty(1, dtype=torch.int64)
    bits_dtype = _AS_INTEGERS[values.dtype]
    count_sampled(1, values.view(bits_dtype), values.shape[1], rows, torch.iinfo(bits_dtype).max, count)
    return int(count) / len(rows)


def among_zeros(values: Tensor, rows: Tensor, total: int) -> Tensor:
    """Rows at their places among `total`, the others zeros.

    Args:
        values: ``[rows, width]``.
        rows: The place of each, at most once, int64.
        total: Number of rows of the result.

    Example:
        >>> among_zeros(torch.tensor([[2.0], [3.0]]), torch.tensor([3, 1]), 4).flatten()
        tensor([0., 3., 0., 2.])
    """
    return zeros(values, total, *values.shape[1:]).index_copy_(0, rows, values)


def _whole_rows(csr: Csr) -> tuple[int, Tensor]:
    """Parts that begin and end with rows: their number and bounds."""
    count = default_count(csr)
    return count, make_cut(csr, count, cut_above=csr.num_edges).bounds


def kept_columns(csr: Csr, active: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The edges from active columns, all rows: row pointer, columns, and the `ids` of the edges kept.

    Args:
        csr: The edges.
        active: ``[columns]``.
        ids: A number for each place, of the index type.
    """
    count, bounds = _whole_rows(csr)
    counts = csr.indptr.new_empty(csr.num_rows + 1)
    counts[0] = 0
    count_columns(count, bounds, csr.indptr, csr.index, active, counts)
    return _put(put_columns, count, bounds, csr, ids, active, counts)


def kept_rows(csr: Csr, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The edges of active rows, all rows: row pointer, columns, and the ids of the edges kept."""
    count, bounds = _whole_rows(csr)
    counts = csr.indptr.new_zeros(csr.num_rows + 1)
    counts[1:] = csr.indptr.diff() * active
    return _put(put_rows, count, bounds, csr, csr.edge_id, active, counts)


def _put(
    kernel: Kernel, count: int, bounds: Tensor, csr: Csr, ids: Tensor | None, active: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    indptr = counts.cumsum(0, dtype=counts.dtype)
    index = csr.index.new_empty(int(indptr[-1]))
    kept_ids = torch.empty_like(index)
    kernel(count, bounds, csr.indptr, csr.index, ids, active, indptr, index, kept_ids)
    return indptr, index, kept_ids


def distances(csr: Csr, targets: Tensor, steps: int) -> Tensor:
    """How many edges, walked from target to source, lead at least from the given targets to each node.

    Args:
        csr: The edges by target, between nodes of one kind.
        targets: ``[nodes]``, 1 for those at distance 0.
        steps: How many edges are walked, at most 254.

    Returns:
        ``[nodes]``, uint8; 255 for nodes that are not reached.

    Example:
        >>> from pygfuse.graph.graph import Graph
        >>> graph = Graph.of(torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> distances(graph.csr, torch.tensor([0, 0, 0, 1]), 2)
        tensor([255,   2,   1,   0], dtype=torch.uint8)
    """
    distance = torch.where(targets.bool(), 0, UNREACHED).to(torch.uint8)
    count, bounds = _whole_rows(csr)
    for step in range(steps):
        reach(count, bounds, csr.indptr, csr.index, distance, step)
    return distance
