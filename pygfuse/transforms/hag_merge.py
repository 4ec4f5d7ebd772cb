"""Algorithm 3 of "Redundancy-Free Computation Graphs for Graph Neural Networks" on blocks of sources.

Within a block every pair of sources has a count, how many targets aggregate both, in a square matrix; the row maxima
are leaves of a tournament tree, corrected only where they are looked at. A merge of (a, b) into w intersects the
targets of a and b and changes the counts of what those targets hold, nothing else. Counts of old pairs only fall and a
new node's counts are at most the redundancy of its merge, so the redundancies of a block's merges never rise.
"""

from __future__ import annotations

import numba
import numpy as np

from pygfuse.cpu.kernel import Kernel

# slots for aggregation nodes beside those of a block's sources; nodes that are used up leave theirs
_SPARE_SHARE, _SPARE_SLOTS = 4, 16


@numba.njit(inline='never')
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


@numba.njit(inline='never')
def _first_largest(tree, leaves):
    """The lowest slot whose bound is the largest."""
    place = 1
    while place < leaves:
        place = 2 * place + (tree[2 * place] != tree[place])
    return place - leaves


@numba.njit(inline='never')
def _intersect(first, length, second, other_length, shared):
    """Puts what two ascending lists share into `shared`; returns its length."""
    if length > other_length:
        first, second, length, other_length = second, first, other_length, length
    found, q = 0, 0
    for p in range(length):
        wanted = first[p]
        # gallop: a long list may meet a short one
        step = 1
        while q + step < other_length and second[q + step] < wanted:
            q += step
            step *= 2
        low, high = q, min(q + step, other_length)
        while low < high:
            middle = (low + high) // 2
            if second[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        q = low
        if q >= other_length:
            break
        if second[q] == wanted:
            shared[found] = wanted
            found += 1
            q += 1
    return found


@numba.njit(inline='never')
def _without(column, length, shared, count):
    """Drops an ascending part of an ascending list in place; returns the new length."""
    kept, k = 0, 0
    for p in range(length):
        if k < count and column[p] == shared[k]:
            k += 1
        else:
            column[kept] = column[p]
            kept += 1
    return kept


@numba.njit(inline='never')
def _take_from_row(rows, begin, length, slot):
    """Drops a slot from a row; the row's last takes its place."""
    q = begin
    while rows[q] != slot:
        q += 1
    rows[q] = rows[begin + length - 1]


@numba.njit(inline='never')
def _rows_of_block(pointer, column_rows, sources):
    """The targets of a block, ascending, and for each number between the lowest and highest its place, -1 if the
    block has fewer than two of its sources."""
    low, high = np.int64(2**62), np.int64(-1)
    for source in sources:
        if pointer[source] < pointer[source + 1]:
            low = min(low, np.int64(column_rows[pointer[source]]))
            high = max(high, np.int64(column_rows[pointer[source + 1] - 1]))
    place = np.zeros(max(high - low + 1, 0), np.int32)
    for source in sources:
        for q in range(pointer[source], pointer[source + 1]):
            place[column_rows[q] - low] += 1
    count = 0
    for t in range(len(place)):
        count += place[t] > 1
    degrees = np.empty(count, np.int32)
    count = 0
    for t in range(len(place)):
        if place[t] > 1:
            degrees[count] = place[t]
            place[t] = count
            count += 1
        else:
            place[t] = -1
    return low, place, degrees


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
    own = sources[block_indptr[block] : block_indptr[block + 1]]
    num_sources, start = len(own), starts[block]
    left = start
    if num_sources < 2 or stop[0] != 0:
        for slot in range(num_sources):
            for q in range(pointer[own[slot]], pointer[own[slot] + 1]):
                left_rows[left], left_nodes[left] = column_rows[q], slot
                left += 1
        num_merges[block], num_left[block] = 0, left - start
        return
    low, place, degrees = _rows_of_block(pointer, column_rows, own)
    num_rows = len(degrees)
    row_begin = np.zeros(num_rows + 1, np.int64)
    for t in range(num_rows):
        row_begin[t + 1] = row_begin[t] + degrees[t]
    total = row_begin[num_rows]
    row_length = np.zeros(num_rows, np.int64)
    rows = np.empty(total, np.int32)
    # every merge takes twice from columns what it gives to a new one
    columns = np.empty(2 * total, np.int32)
    num_slots = num_sources + num_sources // _SPARE_SHARE + _SPARE_SLOTS
    column_begin, column_length = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.int64)
    node_of = np.full(num_slots, -1, np.int32)
    end, merges = 0, 0
    for slot in range(num_sources):
        source = own[slot]
        column_begin[slot], node_of[slot] = end, slot
        for q in range(pointer[source], pointer[source + 1]):
            t = place[column_rows[q] - low]
            if t < 0:
                left_rows[left], left_nodes[left] = column_rows[q], slot
                left += 1
            else:
                columns[end] = t
                end += 1
                rows[row_begin[t] + row_length[t]] = slot
                row_length[t] += 1
        column_length[slot] = end - column_begin[slot]
    target_of = np.empty(num_rows, np.int32)
    for t in range(len(place)):
        if place[t] >= 0:
            target_of[place[t]] = low + t

    counts = np.zeros((num_slots, num_slots), np.int32)
    for t in range(num_rows):
        if stop[0] != 0:
            break
        for p in range(row_begin[t], row_begin[t + 1]):
            of_one = counts[rows[p]]
            for q in range(p + 1, row_begin[t + 1]):
                of_one[rows[q]] += 1
    leaves = 1
    while leaves < num_slots:
        leaves *= 2
    tree = np.zeros(2 * leaves, np.int32)
    partner, exact = np.zeros(num_slots, np.int32), np.zeros(num_slots, np.uint8)
    for slot in range(num_sources):
        bound = 0
        for other in range(num_sources):
            if other < slot:
                counts[slot, other] = counts[other, slot]
            bound = max(bound, counts[slot, other])
        tree[leaves + slot] = bound
    for p in range(leaves - 1, 0, -1):
        tree[p] = max(tree[2 * p], tree[2 * p + 1])
    free = np.empty(num_slots, np.int32)
    num_free = 0
    for slot in range(num_slots - 1, num_sources - 1, -1):
        free[num_free] = slot
        num_free += 1
    shared = np.empty(num_rows, np.int32)

    while tree[1] >= least and stop[0] == 0:
        a = _first_largest(tree, leaves)
        of_a = counts[a]
        if exact[a] == 0:
            bound, best = 0, 0
            for x in range(num_slots):
                if of_a[x] > bound:
                    bound, best = of_a[x], x
            partner[a], exact[a] = best, 1
            if bound < tree[leaves + a]:
                _set_bound(tree, leaves, a, bound)
                continue
        b = np.int64(partner[a])
        of_b = counts[b]
        redundancy = _intersect(
            columns[column_begin[a] :], column_length[a], columns[column_begin[b] :], column_length[b], shared
        )
        if num_free == 0:
            # the node with the smallest bound gives up its slot and stays as it is
            w = -1
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
                counts[w, x] = 0
                counts[x, w] = 0
                if partner[x] == w:
                    exact[x] = 0
        else:
            num_free -= 1
            w = np.int64(free[num_free])
        first_inputs[start + merges], second_inputs[start + merges] = node_of[a], node_of[b]
        redundancies[start + merges] = redundancy
        node_of[w] = num_sources + merges
        merges += 1
        of_w = counts[w]
        column_begin[w], column_length[w] = end, redundancy
        for k in range(redundancy):
            t = shared[k]
            columns[end + k] = t
            begin, length = row_begin[t], row_length[t]
            place_a, place_b = begin, begin
            for q in range(begin, begin + length):
                x = rows[q]
                of_w[x] += 1
                if x == a:
                    place_a = q
                if x == b:
                    place_b = q
            rows[place_a] = w
            rows[place_b] = rows[begin + length - 1]
            row_length[t] = length - 1
        end += redundancy
        of_w[a] = 0
        of_w[b] = 0
        of_a[b] = 0
        of_b[a] = 0
        bound, best = 0, 0
        for x in range(num_slots):
            change = of_w[x]
            if change > 0:
                of_a[x] -= change
                of_b[x] -= change
                of_x = counts[x]
                of_x[a] = of_a[x]
                of_x[b] = of_b[x]
                of_x[w] = change
                if partner[x] == a or partner[x] == b:
                    exact[x] = 0
                if change > bound:
                    bound, best = change, x
        exact[a], exact[b], exact[w] = 0, 0, 1
        partner[w] = best
        _set_bound(tree, leaves, w, bound)
        for used in (a, b):
            length = _without(columns[column_begin[used] :], column_length[used], shared, redundancy)
            column_length[used] = length
            if length < 2:
                for q in range(column_begin[used], column_begin[used] + length):
                    t = columns[q]
                    _take_from_row(rows, row_begin[t], row_length[t], used)
                    row_length[t] -= 1
                    left_rows[left], left_nodes[left] = target_of[t], node_of[used]
                    left += 1
                of_used = counts[used]
                for x in range(num_slots):
                    if of_used[x] > 0:
                        of_used[x] = 0
                        counts[x, used] = 0
                        if partner[x] == used:
                            exact[x] = 0
                _set_bound(tree, leaves, used, 0)
                free[num_free] = used
                num_free += 1
    for t in range(num_rows):
        for q in range(row_begin[t], row_begin[t] + row_length[t]):
            left_rows[left], left_nodes[left] = target_of[t], node_of[rows[q]]
            left += 1
    num_merges[block] = merges
    num_left[block] = left - start


merge_blocks = Kernel(_merge_block, 'the search for a HAG')
