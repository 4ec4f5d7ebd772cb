"""Which aggregation nodes are worth keeping, and the HAG without the others.

A node with u users and k inputs that is written out in its users leaves (u - 1)(k - 1) more binary aggregations. Nodes
are dropped by this loss, the smallest first; a node that is used once goes for nothing. What is left of a tree of
binary merges are nodes of many inputs, so that a limited number of nodes saves more than as many first merges.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges import sort
from pygfuse.cpu.translation.functions import inlined
from pygfuse.hag.hag import Hag, hag_of
from pygfuse.hag.search.search import Merges

_LOSS_LIMIT = 2**31 - 1
_NUMBER_BITS = 32
_PARTS = 64


@inlined
def _sift_down(heap, size, place):
    """Restores the order of a heap, least first, below one place."""
    key = heap[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = key


@inlined
def _insert(nexts, items, after, owner, item):
    """Puts an item at the front of a linked list; returns the lists, which may have grown."""
    entry = nexts[0]
    if entry < 0:
        size = len(nexts)
        grown_nexts, grown_items = np.empty(2 * size, np.int32), np.empty(2 * size, np.int32)
        for place in range(size):
            grown_nexts[place], grown_items[place] = nexts[place], items[place]
        for place in range(size, 2 * size):
            grown_nexts[place] = place + 1
        grown_nexts[2 * size - 1] = -1
        nexts, items, entry = grown_nexts, grown_items, size
    nexts[0] = nexts[entry]
    nexts[entry], items[entry] = after[owner], item
    after[owner] = entry
    return nexts, items


@inlined
def _remove(nexts, items, after, owner, item):
    """Takes an item out of a linked list."""
    entry, before = after[owner], -1
    while items[entry] != item:
        before, entry = entry, nexts[entry]
    if before < 0:
        after[owner] = nexts[entry]
    else:
        nexts[before] = nexts[entry]
    nexts[entry] = nexts[0]
    nexts[0] = entry


@inlined
def _take_out(nexts, items, ones, others, node, counts, more):
    """Takes a node out of the `others` lists of the `ones` that it has, whose counts rise."""
    entry = ones[node]
    while entry >= 0:
        one = np.int64(items[entry])
        counts[one] += more
        _remove(nexts, items, others, one, node)
        entry = nexts[entry]


def _drop_one_by_one(part, order, bounds, num_sources, first_inputs, second_inputs, target_users, loss, rank):
    """Drops the nodes of one component, the cheapest first: the loss at which each goes, and when."""
    component = order[part]
    begin = bounds[component]
    count = bounds[component + 1] - begin
    inputs, users = np.empty(count, np.int64), np.empty(count, np.int64)
    # linked lists of aggregation nodes among each node's inputs and users: for each entry the next one and its item;
    # entry 0 holds the first free entry
    nexts, items = np.empty(4 * count + 2, np.int32), np.empty(4 * count + 2, np.int32)
    for entry in range(len(nexts)):
        nexts[entry] = entry + 1
    nexts[len(nexts) - 1] = -1
    below, above = np.empty(count, np.int32), np.empty(count, np.int32)
    for node in range(count):
        inputs[node], users[node], below[node], above[node] = 2, target_users[begin + node], -1, -1
    for node in range(count):
        for given in (first_inputs[begin + node], second_inputs[begin + node]):
            if given >= num_sources:
                child = np.int64(given - num_sources - begin)
                nexts, items = _insert(nexts, items, below, node, child)
                nexts, items = _insert(nexts, items, above, child, node)
                users[child] += 1
    heap = np.empty(count, np.int64)
    last = count - 1
    for node in range(count):
        heap[node] = (min((users[node] - 1) * (inputs[node] - 1), _LOSS_LIMIT) << _NUMBER_BITS) + last - node
    for place in range(count // 2 - 1, -1, -1):
        _sift_down(heap, count, np.int64(place))
    size, highest, done = count, np.int64(0), 0
    while size > 0:
        key = heap[0]
        node = last - (key & ((1 << _NUMBER_BITS) - 1))
        now = min((users[node] - 1) * (inputs[node] - 1), _LOSS_LIMIT)
        if now > key >> _NUMBER_BITS:  # losses only rise
            heap[0] = (now << _NUMBER_BITS) + last - node
            _sift_down(heap, size, np.int64(0))
            continue
        size -= 1
        heap[0] = heap[size]
        _sift_down(heap, size, np.int64(0))
        highest = max(highest, now)
        loss[begin + node], rank[begin + node] = highest, done
        done += 1
        _take_out(nexts, items, above, below, node, inputs, inputs[node] - 1)
        _take_out(nexts, items, below, above, node, users, users[node] - 1)
        entry = above[node]
        while entry >= 0:
            user = np.int64(items[entry])
            child_entry = below[node]
            while child_entry >= 0:
                child = np.int64(items[child_entry])
                nexts, items = _insert(nexts, items, below, user, child)
                nexts, items = _insert(nexts, items, above, child, user)
                child_entry = nexts[child_entry]
            entry = nexts[entry]


@inlined
def _expand(node, num_sources, kept, first_inputs, second_inputs, stack, sources, of_sources, nodes, of_nodes, write):
    """Writes a node's sources and kept aggregation nodes, looking through dropped ones; returns where they end."""
    stack[0], size = node, 1
    while size > 0:
        size -= 1
        node = stack[size]
        if node < num_sources:
            if write:
                sources[of_sources] = node
            of_sources += 1
        elif kept[node - num_sources] >= 0:
            if write:
                nodes[of_nodes] = kept[node - num_sources]
            of_nodes += 1
        else:
            if size + 2 > len(stack):
                grown = np.empty(2 * len(stack), np.int64)
                for place in range(size):
                    grown[place] = stack[place]
                stack = grown
            stack[size], stack[size + 1] = second_inputs[node - num_sources], first_inputs[node - num_sources]
            size += 2
    return of_sources, of_nodes, stack


def _count_inputs(part, parts, pointer, given, num_sources, kept, first_inputs, second_inputs, counts):
    """Counts each row's sources and kept nodes once dropped ones are written out."""
    rows = len(pointer) - 1
    stack = np.empty(64, np.int64)
    for row in range(part * rows // parts, (part + 1) * rows // parts):
        of_sources, of_nodes = np.int64(0), np.int64(0)
        for q in range(pointer[row], pointer[row + 1]):
            of_sources, of_nodes, stack = _expand(
                np.int64(given[q]), num_sources, kept, first_inputs, second_inputs, stack,
                given, of_sources, given, of_nodes, False,
            )  # fmt: skip
        counts[2 * row], counts[2 * row + 1] = of_sources, of_nodes


def _write_inputs(
    part, parts, pointer, given, num_sources, kept, first_inputs, second_inputs, source_pointer, sources,
    node_pointer, nodes,
):  # fmt: skip
    """Writes each row's sources and kept nodes."""
    rows = len(pointer) - 1
    stack = np.empty(64, np.int64)
    for row in range(part * rows // parts, (part + 1) * rows // parts):
        of_sources, of_nodes = source_pointer[row], node_pointer[row]
        for q in range(pointer[row], pointer[row + 1]):
            of_sources, of_nodes, stack = _expand(
                np.int64(given[q]), num_sources, kept, first_inputs, second_inputs, stack,
                sources, of_sources, nodes, of_nodes, True,
            )  # fmt: skip


def _level_nodes(part, node_pointer, nodes, levels):
    """The level of each node: one more than the highest among its inputs, which come before it."""
    for node in range(len(levels)):
        level = 1
        for q in range(node_pointer[node], node_pointer[node + 1]):
            level = max(level, levels[nodes[q]] + 1)
        levels[node] = level


drop_one_by_one = Kernel(_drop_one_by_one, "the choice of a HAG's nodes")
count_inputs = Kernel(_count_inputs, "the inputs of a HAG's nodes")
write_inputs = Kernel(_write_inputs, "the inputs of a HAG's nodes")
level_nodes = Kernel(_level_nodes, "the levels of a HAG's nodes")


class Pruning:
    """Binary merges of which some are to be kept as the aggregation nodes of a HAG.

    Args:
        merges: What the search found.
    """

    def __init__(self, merges: Merges) -> None:
        self.merges = merges
        self.first, self.second = torch.from_numpy(merges.first), torch.from_numpy(merges.second)
        rows, nodes = torch.from_numpy(merges.rows).long(), torch.from_numpy(merges.nodes).long()
        columns = merges.num_sources + merges.count
        # what targets, and what merges aggregate, as compressed rows
        pointer, aggregated, _ = sort.sort_by_target(rows, nodes, merges.num_targets, columns, None, torch.int32)
        self.of_targets = pointer.long(), aggregated
        self.of_merges = torch.arange(merges.count + 1) * 2, torch.stack([self.first, self.second], dim=1).flatten()
        users = torch.bincount(nodes, minlength=columns)[merges.num_sources :].to(torch.int32)
        self.loss, self.rank = (torch.empty(merges.count, dtype=torch.int32) for _ in range(2))
        sizes = np.diff(merges.bounds)
        drop_one_by_one(
            len(sizes), torch.from_numpy(np.argsort(-sizes, kind='stable')), torch.from_numpy(merges.bounds),
            merges.num_sources, self.first, self.second, users, self.loss, self.rank,
        )  # fmt: skip

    def most_valuable(self, capacity: int, min_loss: int) -> Tensor:
        """Which merges to keep: those that go last, at most `capacity`, none that costs less than `min_loss`."""
        run = np.repeat(np.arange(len(self.merges.bounds) - 1), np.diff(self.merges.bounds))
        order = np.lexsort((run, self.rank.numpy(), self.loss.numpy()))[::-1][:capacity]
        return self._mask(order) & (self.loss >= min(min_loss, _LOSS_LIMIT))

    def most_redundant(self, capacity: int) -> Tensor:
        """Which merges Algorithm 3 makes with this capacity: the first ones."""
        return self._mask(np.argsort(-self.merges.redundancies, kind='stable')[:capacity])

    def _mask(self, chosen: np.ndarray) -> Tensor:
        mask = torch.zeros(self.merges.count, dtype=torch.bool)
        mask[torch.from_numpy(chosen.copy())] = True
        return mask

    def _numbers(self, mask: Tensor) -> Tensor:
        """The number of each merge among those kept, -1 for the others."""
        return torch.where(mask, mask.cumsum(0) - 1, -1).to(torch.int32)

    def _kept_rows(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        return torch.arange(int(mask.sum()) + 1) * 2, self.of_merges[1].view(-1, 2)[mask].flatten()

    def _counts(self, rows: tuple[Tensor, Tensor], numbers: Tensor) -> Tensor:
        """How many sources and kept merges each row aggregates, ``[rows, 2]``."""
        counts = torch.empty(rows[0].numel() - 1, 2, dtype=torch.int64)
        count_inputs(
            _PARTS, _PARTS, *rows, self.merges.num_sources, numbers, self.first, self.second, counts.view(-1)
        )  # fmt: skip
        return counts

    def num_inputs(self, mask: Tensor) -> int:
        """Number of edges of the HAG that keeps these merges."""
        numbers = self._numbers(mask)
        both = (self._counts(rows, numbers).sum() for rows in (self.of_targets, self._kept_rows(mask)))
        return int(sum(both))

    def _rows(self, rows: tuple[Tensor, Tensor], numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sources and kept merges of each row, each as compressed rows."""
        counts = self._counts(rows, numbers)
        pointers = torch.cat([counts.new_zeros(1, 2), counts.cumsum(0)]).t().contiguous()
        sources, kept = (torch.empty(int(pointer[-1]), dtype=torch.int32) for pointer in pointers)
        write_inputs(
            _PARTS, _PARTS, *rows, self.merges.num_sources, numbers, self.first, self.second,
            pointers[0], sources, pointers[1], kept,
        )  # fmt: skip
        return pointers[0], sources, pointers[1], kept

    def levels(self, mask: Tensor) -> Tensor:
        """The level of each merge that is kept, 0 for the others."""
        *_, pointer, kept = self._rows(self._kept_rows(mask), self._numbers(mask))
        found = torch.empty(int(mask.sum()), dtype=torch.int32)
        level_nodes(1, pointer, kept, found)
        levels = torch.zeros(self.merges.count, dtype=torch.int32)
        levels[mask] = found
        return levels

    def hag(self, mask: Tensor) -> Hag:
        """The HAG that keeps these merges as aggregation nodes."""
        numbers, levels = self._numbers(mask), self.levels(mask)[mask]
        return hag_of(
            self.merges.num_sources,
            levels,
            self._rows(self._kept_rows(mask), numbers),
            self._rows(self.of_targets, numbers),
            by_user=True,
        )
