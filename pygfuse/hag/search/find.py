"""A HAG for a set of edges, and whether it pays."""

from __future__ import annotations

import math
import numbers
import time
from typing import Any

from torch import Tensor
from tqdm import tqdm

from pygfuse.graph.graph import Graph
from pygfuse.hag.components import component_bounds
from pygfuse.hag.hag import Hag, hag_of_graph
from pygfuse.hag.search.prune import Pruning
from pygfuse.hag.search.search import search_merges

# what an aggregation node or another row, and a level, cost beside the edges, in edges; measured (docs/hags.md)
_NODE_PRICE, _LEVEL_PRICE = 32, 20_000
# a HAG pays if it is expected to save this share of the time
_LEAST_GAIN = 0.05
# what a search with a time limit keeps of it for the choice of nodes, which follows the merges
_KEPT_S_PER_EDGE = 1.5e-7
# seconds after which progress is shown
_SHOWN_AFTER_S = 2.0


def find_hag(
    edge_index: Any,
    num_nodes: int | tuple[int, int] | None = None,
    capacity: int | float | None = 0.25,
    min_redundancy: int = 2,
    min_saving: int = 1,
    max_depth: int | None = None,
    budget_s: float | None = None,
    block_size: int = 2048,
    progress: bool = True,
) -> Hag:
    r"""Searches a HAG of a graph for sums, means, maxima and minima (Algorithm 3 of the paper).

    Pairs of nodes that the most targets aggregate are merged into a new node, again and again; then the nodes that save
    least are written out in their users until no more than `capacity` are left, so that nodes have many inputs, not
    two. At the same capacity this saves more than the first merges do; should it save less, those are taken.

    All pairs are counted in components of up to `block_size` sources. A larger component is searched in rounds, each
    in blocks of so many sources whose targets have the same smallest hashes (MinHash), from the most redundant pairs to
    the least: time and memory do not grow with the squares of degrees. docs/hags.md says what that costs.

    Args:
        edge_index: Any adjacency that PyG takes, or a `Graph`.
        num_nodes: Number of nodes, or of sources and of targets; by default one more than the largest.
        capacity: The most aggregation nodes, as a number or (a float) as a share of the targets; None for any number.
        min_redundancy: How many targets must aggregate both nodes of a pair for it to be merged, at least 2.
        min_saving: How many binary aggregations a node must save to be kept.
        max_depth: The most levels of aggregation nodes.
        budget_s: Seconds for all of it: merging ends early enough to choose nodes among what it has found by then, for
            which 0.15 seconds for a million edges are kept. Without it, and where it is not reached, the result is
            always the same.
        block_size: Number of sources among which all pairs are counted.
        progress: Whether a search of more than two seconds shows a progress bar.

    Returns:
        The HAG. Every target's cover is its neighbours, repeated ones as often as they stand there.

    Raises:
        ValueError: If an argument is out of range or `edge_index` is no adjacency.

    Example:
        >>> edge_index = torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]])
        >>> find_hag(edge_index).targets.index
        tensor([0, 0], dtype=torch.int32)
    """
    started = time.monotonic()
    check_options(capacity, min_redundancy, min_saving, max_depth, budget_s, block_size)
    sizes = num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)
    graph = Graph.of(edge_index, num_sources=sizes[0], num_targets=sizes[1])
    deadline = None if budget_s is None else started + budget_s - _KEPT_S_PER_EDGE * graph.num_edges
    with tqdm(
        desc='Search of a HAG', unit=' edges', unit_scale=True, delay=_SHOWN_AFTER_S, disable=not progress
    ) as bar:

        def show(done: int, work: int) -> None:
            bar.total = work
            bar.update(done - bar.n)

        merges = search_merges(graph, min_redundancy, block_size, deadline, show)
    if not merges.count:
        return hag_of_graph(graph)
    pruning = Pruning(merges)
    limit = _limit(capacity, graph.num_targets, merges.count)
    kept = pruning.most_valuable(limit, min_saving)
    if limit < merges.count and min_saving <= 1:
        first = pruning.most_redundant(limit)
        if _cost(pruning, first) < _cost(pruning, kept):
            kept = first
    if max_depth is not None:
        kept = kept & (pruning.levels(kept) <= min(max_depth, merges.count))
    return pruning.hag(kept)


def _cost(pruning: Pruning, kept: Tensor) -> int:
    return pruning.num_inputs(kept) - int(kept.sum())


def _limit(capacity: int | float | None, num_targets: int, most: int) -> int:
    if capacity is None:
        return most
    return math.floor(min(most, capacity if isinstance(capacity, numbers.Integral) else capacity * num_targets))


def check_options(
    capacity: int | float | None,
    min_redundancy: int,
    min_saving: int,
    max_depth: int | None,
    budget_s: float | None,
    block_size: int,
) -> None:
    """Raises a ValueError that names the first option out of range."""
    if capacity is not None and (not isinstance(capacity, numbers.Real) or not capacity >= 0):
        raise ValueError(f"Expected 'capacity' to be a number that is not negative, or None (got {capacity!r})")
    least = {'min_redundancy': (min_redundancy, 2), 'min_saving': (min_saving, 0), 'block_size': (block_size, 2)}
    if max_depth is not None:
        least['max_depth'] = max_depth, 0
    for name, (value, smallest) in least.items():
        if not isinstance(value, numbers.Integral) or value < smallest:
            raise ValueError(f"Expected '{name}' to be an integer, at least {smallest} (got {value!r})")
    if budget_s is not None and (not isinstance(budget_s, numbers.Real) or not budget_s > 0):
        raise ValueError(f"Expected 'budget_s' to be a positive number of seconds, or None (got {budget_s!r})")


def expected_gain(hag: Hag) -> float:
    """How many times less time than over the graph an aggregation over the HAG is expected to take."""
    # a batch of graphs takes one walk for all levels
    levels = hag.depth if component_bounds(hag) is None else 0
    rows = _NODE_PRICE * hag.num_targets + _LEVEL_PRICE
    nodes = _NODE_PRICE * hag.num_aggregation_nodes + _LEVEL_PRICE * levels
    return (hag.data_transfers.before + rows) / (hag.data_transfers.after + nodes + rows)


def why_not_worth(hag: Hag) -> str | None:
    """The reason, if any, for which a HAG is not worth its levels."""
    gain = expected_gain(hag)
    if hag.depth and gain * (1 - _LEAST_GAIN) >= 1:
        return None
    if not hag.depth:
        return 'it does not pay: its targets share nothing that is worth a node'
    return f'it does not pay: expected to take {1 / gain:.2f} of the time without'
