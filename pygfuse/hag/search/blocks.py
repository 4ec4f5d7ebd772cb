"""Blocks of sources among which a HAG is searched: whole components, or groups of similar sources of a large one."""

from __future__ import annotations

import numpy as np

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import inlined


@inlined
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _join_sources(part, indptr, index, parent):
    """Joins sources that share a target; each source's label is the smallest of its component."""
    for target in range(len(indptr) - 1):
        begin, end = indptr[target], indptr[target + 1]
        if end > begin:
            first = _root(parent, np.int64(index[begin]))
            for q in range(begin + 1, end):
                other = _root(parent, np.int64(index[q]))
                if other < first:
                    first, other = other, first
                parent[other] = first
    for source in range(len(parent)):
        parent[source] = _root(parent, np.int64(source))


join_sources = Kernel(_join_sources, 'the components of a graph')

# columns that one part hashes
HASHED_TOGETHER = 1024


def _smallest_hashes(part, pointer, column_rows, columns, seeds, hashes):
    """For each column and seed the smallest hash of its targets: equal for two columns as often as they are similar
    (their Jaccard index)."""
    for place in range(part * HASHED_TOGETHER, min(len(columns), (part + 1) * HASHED_TOGETHER)):
        column = columns[place]
        for k in range(len(seeds)):
            smallest = np.int64(2**63 - 1)
            for q in range(pointer[column], pointer[column + 1]):
                bits = np.uint64(column_rows[q]) + np.uint64(seeds[k])
                bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                smallest = min(smallest, np.int64((bits ^ (bits >> np.uint64(31))) >> np.uint64(1)))
            hashes[k * len(columns) + place] = smallest


smallest_hashes = Kernel(_smallest_hashes, 'the hashes of similar sources')
