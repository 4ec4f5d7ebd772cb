"""The search for a HAG of a whole graph: blocks, merges, what is kept."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from pygfuse.cpu.edges import sort
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.graph.orders import INT32_LIMIT
from pygfuse.hag.search.blocks import HASHED_TOGETHER, join_sources, smallest_hashes
from pygfuse.hag.search.merge import merge_blocks

# small components share a block
_PACKED_SOURCES = 64
# rounds over similar sources: the least redundancy falls to half after so many
_ROUNDS_EACH = 2
_FIRST_LEAST = 64
_SEED_STEP = 0x1E3779B97F4A7C15
# how often progress is told, and the edges that are worth telling
_PORTIONS, _PORTION_WORK = 50, 200_000


@dataclasses.dataclass
class Merges:
    """Binary aggregation nodes and what targets aggregate in the end. Numbers from `num_sources` on are merges.

    Attributes:
        num_sources, num_targets: Numbers of sources and targets.
        first, second: The inputs of each merge, int32; they come before it.
        redundancies: How many targets aggregated both when it was made, int32.
        bounds: Where the merges of each run begin that shares no aggregation node with others, and the end, int64.
        rows, nodes: What targets aggregate: pairs of a target and a node, int32.
    """

    num_sources: int
    num_targets: int
    first: np.ndarray
    second: np.ndarray
    redundancies: np.ndarray
    bounds: np.ndarray
    rows: np.ndarray
    nodes: np.ndarray

    @property
    def count(self) -> int:
        return len(self.first)


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Iterator[Tensor]:
    """A flag that is set when the time is over."""
    is_over = seconds is not None and seconds <= 0
    stop = torch.full((1,), int(is_over))
    waits = seconds is not None and not is_over and seconds < threading.TIMEOUT_MAX
    timer = threading.Timer(seconds, lambda: stop.fill_(1)) if waits else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield stop
    finally:
        if timer is not None:
            timer.cancel()


def search_merges(
    graph: Graph,
    min_redundancy: int,
    block_size: int,
    deadline: float | None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Merges:
    """Merges pairs until no pair that is looked at is aggregated by `min_redundancy` targets.

    Args:
        graph: The graph.
        min_redundancy: At least 2.
        block_size: Components of at most so many sources are searched whole; larger ones in rounds, in blocks of so
            many similar sources.
        deadline: When, by ``time.monotonic``, it ends with what it has; None for never.
        on_progress: Called with work done and all work.
    """
    columns = graph.csc
    pointer, rows, repeats = _without_repeats(columns.indptr.to(torch.int64), columns.index.to(torch.int32))
    blocks, members, large = _components(graph, pointer.numpy(), block_size)
    state = _State(graph.num_sources, graph.num_targets, pointer.numpy(), rows.numpy())
    rounds = _thresholds(min_redundancy) if len(large) else []
    work_of_large = int(np.diff(state.pointer)[large].sum())
    work_of_small = int(np.diff(state.pointer)[members].sum())
    work = work_of_small + len(rounds) * work_of_large
    with _time_limit(None if deadline is None else deadline - time.monotonic()) as stop:
        bounds = state.merge(blocks, members, min_redundancy, stop, lambda own: on_progress(own, work))
        num_small = int(bounds[-1])
        for number, least in enumerate(rounds):
            if stop[0]:
                break
            done = work_of_small + number * work_of_large
            on_progress(done, work)
            candidates = np.concatenate([large, np.arange(graph.num_sources + num_small, state.num_columns)])
            blocks, members = _similar(state, candidates, least, number, block_size)
            if len(members) > 1:
                state.merge(
                    blocks, members, least, stop,
                    lambda own, done=done: on_progress(done + min(own, work_of_large), work),
                )  # fmt: skip
        on_progress(work, work)
    return state.result(bounds, repeats)


def _thresholds(min_redundancy: int) -> list[int]:
    """The least redundancy of each round: it falls, so that the most redundant pairs are merged first."""
    falling = [_FIRST_LEAST]
    while falling[-1] > min_redundancy:
        falling.append(max(falling[-1] // 2, min_redundancy))
    return [max(least, min_redundancy) for least in falling for _ in range(_ROUNDS_EACH)]


def _without_repeats(pointer: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Columns in which each target stands once, and the other edges as pairs of a target and a source."""
    sources = Csr(pointer, rows, None).rows()
    repeated = torch.zeros(rows.numel(), dtype=torch.bool)
    repeated[1:] = (rows[1:] == rows[:-1]) & (sources[1:] == sources[:-1])
    if not bool(repeated.any()):
        return pointer, rows, (rows[:0], sources[:0].int())
    counts = torch.bincount(sources[~repeated], minlength=pointer.numel() - 1)
    shorter = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return shorter, rows[~repeated], (rows[repeated], sources[repeated].int())


def _components(graph: Graph, pointer: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks of whole components of sources with several targets, and the sources of components that are too large."""
    label = torch.arange(graph.num_sources, dtype=torch.int32)
    join_sources(1, graph.csr.indptr, graph.csr.index, label)
    candidates = np.flatnonzero(np.diff(pointer) > 1)
    labels = label.numpy()[candidates]
    candidates = candidates[np.argsort(labels, kind='stable')]
    _, sizes = np.unique(labels, return_counts=True)
    is_large = sizes > block_size
    ends, held = [0], 0
    for size in sizes[~is_large].tolist():
        if held and held + size > _PACKED_SOURCES:
            ends.append(ends[-1] + held)
            held = 0
        held += size
    if held:
        ends.append(ends[-1] + held)
    of_large = np.repeat(is_large, sizes)
    return np.array(ends), candidates[~of_large], candidates[of_large]


def _similar(
    state: _State, candidates: np.ndarray, least: int, number: int, block_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of columns with similar targets: neighbours in the order of their smallest hashes, others each round."""
    members = candidates[np.diff(state.pointer)[candidates] >= least]
    if len(members) > block_size:
        seeds = torch.tensor([2 * number + 1, 2 * number + 2]) * _SEED_STEP
        hashes = torch.empty(2 * len(members), dtype=torch.int64)
        smallest_hashes(
            -(-len(members) // HASHED_TOGETHER), torch.from_numpy(state.pointer), torch.from_numpy(state.rows),
            torch.from_numpy(members), seeds, hashes,
        )  # fmt: skip
        first, second = hashes.view(2, -1).numpy()
        members = members[np.lexsort((second, first))]
    return np.append(np.arange(0, len(members), block_size), len(members)), members


class _State:
    """The columns of a graph while pairs are merged: sources, then merges, each with the targets that aggregate it."""

    def __init__(self, num_sources: int, num_targets: int, pointer: np.ndarray, rows: np.ndarray) -> None:
        self.num_sources, self.num_targets = num_sources, num_targets
        self.pointer, self.rows = pointer, rows
        self.merges: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def num_columns(self) -> int:
        return len(self.pointer) - 1

    def merge(
        self, blocks: np.ndarray, members: np.ndarray, least: int, stop: Tensor,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> np.ndarray:  # fmt: skip
        """Merges within blocks: ``members[blocks[b] : blocks[b + 1]]`` are columns. Returns where the merges of each
        block begin, and the end."""
        degrees = np.diff(self.pointer)
        starts = np.concatenate([[0], np.cumsum(degrees[members])])[blocks]
        total, num_blocks = int(starts[-1]), len(blocks) - 1
        first, second, redundancies, left_rows, left_nodes = (torch.empty(total, dtype=torch.int32) for _ in range(5))
        num_merges, num_left = (torch.zeros(num_blocks, dtype=torch.int64) for _ in range(2))
        work = np.diff(starts)
        order = np.argsort(-work, kind='stable')
        given = (blocks, members.astype(np.int32), self.pointer, self.rows, starts)
        for begin, end in _portions(work[order]):
            merge_blocks(
                end - begin, torch.from_numpy(order[begin:end]), *map(torch.from_numpy, given), least, stop,
                first, second, redundancies, num_merges, left_rows, left_nodes, num_left,
            )  # fmt: skip
            on_progress(int(work[order[:end]].sum()))
        counts = num_merges.numpy()
        bounds = np.concatenate([[0], np.cumsum(counts)])
        count = self.num_columns + int(bounds[-1])
        if count > INT32_LIMIT:
            raise ValueError(f'Expected a graph whose HAG has at most {INT32_LIMIT} nodes (got {count})')

        def numbered(numbers: Tensor, per_block: np.ndarray) -> np.ndarray:
            """Numbers within blocks as numbers of columns."""
            block = np.repeat(np.arange(num_blocks), per_block)
            local = numbers.numpy()[_places(starts[:-1], per_block)]
            sizes = np.diff(blocks)[block]
            own = members[np.minimum(local, sizes - 1) + blocks[block]] if len(members) else local
            return np.where(local < sizes, own, local - sizes + self.num_columns + bounds[block]).astype(np.int32)

        self.merges.append(
            (numbered(first, counts), numbered(second, counts), redundancies.numpy()[_places(starts[:-1], counts)])
        )
        if not bounds[-1]:
            return bounds
        untouched = np.ones(self.num_columns, bool)
        untouched[members] = False
        others = np.flatnonzero(untouched)
        rows = [left_rows.numpy()[_places(starts[:-1], num_left.numpy())]]
        rows.append(self.rows[_places(self.pointer[others], degrees[others])])
        nodes = [numbered(left_nodes, num_left.numpy()), np.repeat(others, degrees[others])]
        self._set_columns(np.concatenate(rows), np.concatenate(nodes), count)
        return bounds

    def _set_columns(self, rows: np.ndarray, nodes: np.ndarray, count: int) -> None:
        by_target = sort.sort_by_target(
            torch.from_numpy(rows).long(), torch.from_numpy(nodes).long(), self.num_targets, count, None, torch.int32
        )
        pointer, found, _ = sort.transpose(by_target[0], by_target[1], count)
        self.pointer, self.rows = pointer.numpy().astype(np.int64), found.numpy()

    def result(self, bounds: np.ndarray, repeats: tuple[Tensor, Tensor]) -> Merges:
        """All merges, those after the runs as one more run, and what targets aggregate with repeated edges."""
        first, second, redundancies = (np.concatenate(part) for part in zip(*self.merges, strict=True))
        bounds = np.append(bounds, len(first)) if bounds[-1] < len(first) else bounds
        nodes = np.repeat(np.arange(self.num_columns, dtype=np.int32), np.diff(self.pointer))
        return Merges(
            self.num_sources, self.num_targets, first, second, redundancies, bounds,
            np.concatenate([self.rows, repeats[0].numpy()]), np.concatenate([nodes, repeats[1].numpy()]),
        )  # fmt: skip


def _places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``starts[i], starts[i] + 1, ...``, `counts[i]` of them, for each i."""
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(starts - before, counts)


def _portions(work: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of blocks of about equal work, after each of which progress is told."""
    done = np.cumsum(work)
    if len(work):
        steps = max(1, min(_PORTIONS, int(done[-1]) // _PORTION_WORK))
        ends = np.searchsorted(done, done[-1] * np.arange(1, steps) / steps) + 1
        edges = np.unique(np.concatenate([[0], ends, [len(work)]])).tolist()
        yield from itertools.pairwise(edges)
