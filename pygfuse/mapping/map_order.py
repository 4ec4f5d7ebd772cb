"""Whether a linear map of nodes comes before a sum over edges or after it: the two commute, and cost differently."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from pygfuse._lib.modes import changed, modes
from pygfuse.mapping.cost_model import CPU_COSTS

MAP_FIRST, AGGREGATE_FIRST = 'map first', 'aggregate first'
ORDERS = (MAP_FIRST, AGGREGATE_FIRST)

# numbers that are gathered in all, below which the orders differ by less than it takes to tell them apart
FEW_NUMBERS = 2**17
# the other order is taken if it is estimated to save this share of the time
WORTHWHILE = 0.1
# prices in ns of one worker: a product and a sum, and what a byte of a row costs where rows are more than a cache holds
MULTIPLY_ADD, CACHE_BYTES, FAR_EDGE_BYTE = 0.02, 2**20, 0.02
# edges of a node where their number is not known yet
USUAL_DEGREE = 10


class MappedSum(NamedTuple):
    """A sum or mean over edges and a linear map of it.

    Attributes:
        num_sources, num_targets, num_edges: Of the graph.
        width, mapped_width: Numbers of a row of features, and of one that is mapped.
        itemsize: Bytes of a number.
        trains_x, trains_map, trains_edges: Whether features, the map, and weights of edges get a gradient.
    """

    num_sources: int
    num_targets: int
    num_edges: int
    width: int
    mapped_width: int
    itemsize: int
    trains_x: bool
    trains_map: bool
    trains_edges: bool


def cost(of: MappedSum, order: str) -> float:
    """The estimated time in ns of one worker of a training step: forward, and backward for what gets a gradient.

    Where nothing before the edges gets a gradient, backward does not walk them: that is so of features that do not, if
    they are aggregated first.

    Args:
        of: What is computed.
        order: `MAP_FIRST` or `AGGREGATE_FIRST`.

    Example:
        >>> wide = MappedSum(10_000, 10_000, 400_000, 767, 64, 4, True, True, False)
        >>> cost(wide, MAP_FIRST) < cost(wide, AGGREGATE_FIRST)
        True
    """
    if order == MAP_FIRST:
        rows, walked, trains_walked = of.num_sources, of.mapped_width, of.trains_x or of.trains_map
        trains_mapped = of.trains_x
    else:
        rows, walked, trains_walked = of.num_targets, of.width, of.trains_x
        trains_mapped = of.trains_x or of.trains_edges
    products = 1 + of.trains_map + trains_mapped
    row_bytes = walked * of.itemsize
    walks = _walk(of.num_edges, of.num_sources, of.num_targets, row_bytes)
    if trains_walked:
        walks += _walk(of.num_edges, of.num_targets, of.num_sources, row_bytes)
    if of.trains_edges:
        walks += _walk(of.num_edges, of.num_targets, 0, row_bytes)
    return walks + products * rows * of.width * of.mapped_width * MULTIPLY_ADD


def _walk(num_edges: int, num_gathered: int, num_rows: int, row_bytes: int) -> float:
    """What a walk costs that gathers some rows and writes others."""
    costs = CPU_COSTS
    edge_byte = costs.edge_byte if num_gathered * row_bytes <= CACHE_BYTES else FAR_EDGE_BYTE
    return num_edges * (costs.edge + edge_byte * row_bytes) + num_rows * (costs.row + costs.row_byte * row_bytes)


def cheaper(of: MappedSum, usual: str) -> str:
    """The order of less estimated cost; between near equals the usual one.

    Args:
        of: What is computed.
        usual: The order that PyG's layer has.
    """
    if of.num_edges * max(of.width, of.mapped_width) < FEW_NUMBERS:
        return usual
    other = AGGREGATE_FIRST if usual == MAP_FIRST else MAP_FIRST
    return other if cost(of, other) < (1 - WORTHWHILE) * cost(of, usual) else usual


def forced_order() -> str | None:
    """The order that `force_order` forces here, or None."""
    return modes().order


def force_order(order: str) -> contextlib.AbstractContextManager[None]:
    """Forces the order of linear maps and sums over edges, where they commute, for layers within a ``with`` block.

    Args:
        order: ``'map first'`` or ``'aggregate first'``.

    Raises:
        ValueError: If there is no such order.

    Example:
        >>> with force_order('map first'):
        ...     pass
    """
    if order not in ORDERS:
        raise ValueError(f"Expected 'order' to be one of {ORDERS} (got {order!r})")
    return changed(order=order)
