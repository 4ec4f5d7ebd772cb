"""Algorithm 3 of "Redundancy-Free Computation Graphs for Graph Neural Networks" on blocks of sources.

Within a block every pair of sources has a count, how many targets aggregate both, in a square matrix; sources with too
few targets in common with any others have no place in it, so that it is small where the graph is sparse. The row maxima
are leaves of a tournament tree, corrected only where they are looked at. A merge of (a, b) into w intersects the
targets of a and b and changes the counts of what those targets hold, nothing else. Counts of old pairs only fall and a
new node's counts are at most the redundancy of its merge, so the redundancies of a block's merges never rise.
"""

from __future__ import annotations

import numpy as np

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.walks.ordered import first_not_below

# slots for aggregation nodes beside those of a block's sources; nodes that are used up leave theirs
_SPARE_SHARE, SPARE_SLOTS = 4, 16
# bits of a target that one pass of a sort looks at
_DIGIT_BITS = 11


@inlined
def _set_bound(tree, leaves, slot, bound):
    """Writes a row's bound into the tournament tree."""
    place = leaves + slot
    tree[place] = bound
    place //= 2
    while place > 0:
        larger = max(tree[2 * place], tree[2 * place + 1])
        if tree[place] == larger:
            break
        tree[place] = larger
        place //= 2


@inlined
def _first_largest(tree, leaves):
    """The lowest slot whose bound is the largest."""
    place = 1
    while place < leaves:
        place = 2 * place + (tree[2 * place] != tree[place])
    return place - leaves


@inlined
def _intersect(columns, first, length, second, other_length, shared):
    """Puts what two ascending lists, that begin at `first` and `second`, share into `shared`; returns its length."""
    if length > other_length:
        first, second, length, other_length = second, first, other_length, length
    found, q, end = 0, second, second + other_length
    for p in range(first, first + length):
        wanted = columns[p]
        # gallop: a long list may meet a short one
        step = 1
        while q + step < end and columns[q + step] < wanted:
            q += step
            step *= 2
        q = first_not_below(columns, q, min(q + step, end), wanted)
        if q >= end:
            break
        if columns[q] == wanted:
            shared[found] = wanted
            found += 1
            q += 1
    return found


@inlined
def _without(columns, begin, length, shared, count):
    """Drops an ascending part of an ascending list in place; returns the new length."""
    kept, k = begin, 0
    for p in range(begin, begin + length):
        if k < count and columns[p] == shared[k]:
            k += 1
        else:
            columns[kept] = columns[p]
            kept += 1
    return kept - begin


@inlined
def _take_from_row(rows, begin, length, slot):
    """Drops a slot from a row; the row's last takes its place."""
    q = begin
    while rows[q] != slot:
        q += 1
    rows[q] = rows[begin + length - 1]


@inlined
def _sort_by_target(targets, order, room):
    """Numbers of edges in the order of their targets, by a radix sort; returns which of the two memories holds it."""
    edges = len(targets)
    low, high = targets[0], targets[0]
    for e in range(edges):
        low, high = min(low, targets[e]), max(high, targets[e])
        order[e] = e
    digits = 1 << _DIGIT_BITS
    places = np.empty(digits + 1, np.int64)
    shift = 0
    while (high - low) >> shift > 0:
        for digit in range(digits + 1):
            places[digit] = 0
        for e in range(edges):
            places[(((targets[e] - low) >> shift) & (digits - 1)) + 1] += 1
        for digit in range(digits):
            places[digit + 1] += places[digit]
        for k in range(edges):
            e = order[k]
            digit = ((targets[e] - low) >> shift) & (digits - 1)
            room[places[digit]] = e
            places[digit] += 1
        order, room = room, order
        shift += _DIGIT_BITS
    return order


@inlined
def _number_rows(targets, order, target_of, row_begin):
    """Numbers the targets of several edges, ascending, in place of the targets of all edges; -1 stands for others.

    Returns their number. Row t is that of ``target_of[t]``, and has as many edges as there are from ``row_begin[t]``
    to ``row_begin[t + 1]``.
    """
    edges, rows, k = len(targets), 0, 0
    row_begin[0] = 0
    while k < edges:
        target, first = targets[order[k]], k
        while k < edges and targets[order[k]] == target:
            k += 1
        number = -1
        if k - first > 1:
            number = rows
            target_of[rows] = target
            row_begin[rows + 1] = row_begin[rows] + k - first
            rows += 1
        for same in range(first, k):
            targets[order[same]] = number
    return rows


def _merge_block(
    part, order, block_indptr, sources, pointer, column_rows, starts, least, stop,
    first_inputs, second_inputs, redundancies, num_merges, left_rows, left_nodes, num_left,
):  # fmt: skip
    """Merges pairs of one block, the most redundant first, until none reaches `least`.

    Writes, from ``starts[block]`` on, the inputs and the redundancy of each merge (numbers below the block's number of
    sources are its sources, the others its merges), and what the targets aggregate in the end: pairs of a target and
    such a number. Ends early, with what it has, once ``stop[0]`` is set.
    """
    block = order[part]
    own, start = block_indptr[block], starts[block]
    num_sources = block_indptr[block + 1] - own
    left, edges = start, starts[block + 1] - start
    if num_sources < 2 or edges < 2 or stop[0] != 0:
        for slot in range(num_sources):
            for q in range(pointer[sources[own + slot]], pointer[sources[own + slot] + 1]):
                left_rows[left], left_nodes[left] = column_rows[q], slot
                left += 1
        num_merges[block], num_left[block] = 0, left - start
        return
    row_of_edge, order_of, room = np.empty(edges, np.int32), np.empty(edges, np.int32), np.empty(edges, np.int32)
    e = 0
    for slot in range(num_sources):
        for q in range(pointer[sources[own + slot]], pointer[sources[own + slot] + 1]):
            row_of_edge[e] = column_rows[q]
            e += 1
    by_target = _sort_by_target(row_of_edge, order_of, room)
    target_of, row_begin = np.empty(edges // 2, np.int32), np.empty(edges // 2 + 1, np.int64)
    num_rows = _number_rows(row_of_edge, by_target, target_of, row_begin)

    # a column with fewer such targets than a merge takes keeps all its edges
    slot_of = np.empty(num_sources, np.int64)
    num_active, e = 0, 0
    for source in range(num_sources):
        found = 0
        for _ in range(pointer[sources[own + source]], pointer[sources[own + source] + 1]):
            found += row_of_edge[e] >= 0
            e += 1
        slot_of[source] = num_active if found >= least else -1
        num_active += found >= least
    num_slots = num_active + min(num_active, num_sources // _SPARE_SHARE) + SPARE_SLOTS
    row_length = np.empty(num_rows, np.int64)
    for t in range(num_rows):
        row_length[t] = 0
    rows = np.empty(row_begin[num_rows], np.int32)
    # every merge takes twice from columns what it gives to a new one
    columns = np.empty(2 * row_begin[num_rows], np.int32)
    column_begin, column_length = np.empty(num_slots, np.int64), np.empty(num_slots, np.int64)
    node_of = np.empty(num_slots, np.int32)
    end, merges, e = 0, 0, 0
    for source in range(num_sources):
        slot = slot_of[source]
        if slot >= 0:
            column_begin[slot], node_of[slot] = end, source
        for q in range(pointer[sources[own + source]], pointer[sources[own + source] + 1]):
            t = np.int64(row_of_edge[e])
            e += 1
            if slot < 0 or t < 0:
                left_rows[left], left_nodes[left] = column_rows[q], source
                left += 1
            else:
                columns[end] = t
                end += 1
                rows[row_begin[t] + row_length[t]] = slot
                row_length[t] += 1
        if slot >= 0:
            column_length[slot] = end - column_begin[slot]

    # how many targets hold both of two slots: symmetric, a row of `num_slots` for each
    counts = np.empty(num_slots * num_slots, np.int32)
    for k in range(len(counts)):
        counts[k] = 0
    for t in range(num_rows):
        if stop[0] != 0:
            break
        row_end = row_begin[t] + row_length[t]
        for p in range(row_begin[t], row_end):
            of_one = np.int64(rows[p]) * num_slots
            for q in range(p + 1, row_end):
                counts[of_one + rows[q]] += 1
    leaves = 1
    while leaves < num_slots:
        leaves *= 2
    tree = np.empty(2 * leaves, np.int32)
    for p in range(leaves, 2 * leaves):
        tree[p] = 0
    partner, is_exact = np.empty(num_slots, np.int32), np.empty(num_slots, np.int32)
    for slot in range(num_slots):
        partner[slot], is_exact[slot] = 0, 0
    for slot in range(num_active):
        bound = np.int64(0)
        for other in range(num_active):
            if other < slot:
                counts[slot * num_slots + other] = counts[other * num_slots + slot]
            if counts[slot * num_slots + other] > bound:
                bound = counts[slot * num_slots + other]
        tree[leaves + slot] = bound
    for p in range(leaves - 1, 0, -1):
        tree[p] = max(tree[2 * p], tree[2 * p + 1])
    free = np.empty(num_slots, np.int32)
    num_free = 0
    for slot in range(num_slots - 1, num_active - 1, -1):
        free[num_free] = slot
        num_free += 1
    shared = np.empty(num_rows, np.int32)

    while tree[1] >= least and stop[0] == 0:
        a = _first_largest(tree, leaves)
        of_a = a * num_slots
        if is_exact[a] == 0:
            bound, best = np.int64(0), 0
            for x in range(num_slots):
                if counts[of_a + x] > bound:
                    bound, best = counts[of_a + x], x
            partner[a], is_exact[a] = best, 1
            if bound < tree[leaves + a]:
                _set_bound(tree, leaves, a, bound)
                continue
        b = np.int64(partner[a])
        of_b = b * num_slots
        redundancy = _intersect(columns, column_begin[a], column_length[a], column_begin[b], column_length[b], shared)
        if num_free == 0:
            # the node with the smallest bound gives up its slot and stays as it is
            w = np.int64(-1)
            for slot in range(num_slots):
                if slot != a and slot != b and (w < 0 or tree[leaves + slot] < tree[leaves + w]):
                    w = slot
            for q in range(column_begin[w], column_begin[w] + column_length[w]):
                t = columns[q]
                _take_from_row(rows, row_begin[t], row_length[t], w)
                row_length[t] -= 1
                left_rows[left], left_nodes[left] = target_of[t], node_of[w]
                left += 1
            for x in range(num_slots):
                counts[w * num_slots + x] = 0
                counts[x * num_slots + w] = 0
                if partner[x] == w:
                    is_exact[x] = 0
        else:
            num_free -= 1
            w = np.int64(free[num_free])
        first_inputs[start + merges], second_inputs[start + merges] = node_of[a], node_of[b]
        redundancies[start + merges] = redundancy
        node_of[w] = num_sources + merges
        merges += 1
        of_w = w * num_slots
        column_begin[w], column_length[w] = end, redundancy
        for k in range(redundancy):
            t = shared[k]
            columns[end + k] = t
            begin, length = row_begin[t], row_length[t]
            place_a, place_b = begin, begin
            for q in range(begin, begin + length):
                x = rows[q]
                counts[of_w + x] += 1
                if x == a:
                    place_a = q
                if x == b:
                    place_b = q
            rows[place_a] = w
            rows[place_b] = rows[begin + length - 1]
            row_length[t] = length - 1
        end += redundancy
        counts[of_w + a] = 0
        counts[of_w + b] = 0
        counts[of_a + b] = 0
        counts[of_b + a] = 0
        bound, best = np.int64(0), 0
        for x in range(num_slots):
            change = counts[of_w + x]
            if change > 0:
                counts[of_a + x] -= change
                counts[of_b + x] -= change
                of_x = x * num_slots
                counts[of_x + a] = counts[of_a + x]
                counts[of_x + b] = counts[of_b + x]
                counts[of_x + w] = change
                if partner[x] == a or partner[x] == b:
                    is_exact[x] = 0
                if change > bound:
                    bound, best = change, x
        is_exact[a], is_exact[b], is_exact[w] = 0, 0, 1
        partner[w] = best
        _set_bound(tree, leaves, w, bound)
        for used in (a, b):
            length = _without(columns, column_begin[used], column_length[used], shared, redundancy)
            column_length[used] = length
            if length < 2:
                for q in range(column_begin[used], column_begin[used] + length):
                    t = columns[q]
                    _take_from_row(rows, row_begin[t], row_length[t], used)
                    row_length[t] -= 1
                    left_rows[left], left_nodes[left] = target_of[t], node_of[used]
                    left += 1
                of_used = used * num_slots
                for x in range(num_slots):
                    if counts[of_used + x] > 0:
                        counts[of_used + x] = 0
                        counts[x * num_slots + used] = 0
                        if partner[x] == used:
                            is_exact[x] = 0
                _set_bound(tree, leaves, used, np.int64(0))
                free[num_free] = used
                num_free += 1
    for t in range(num_rows):
        for q in range(row_begin[t], row_begin[t] + row_length[t]):
            left_rows[left], left_nodes[left] = target_of[t], node_of[rows[q]]
            left += 1
    num_merges[block] = merges
    num_left[block] = left - start


merge_blocks = Kernel(_merge_block, 'the search for a HAG')
