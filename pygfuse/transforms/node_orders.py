"""Orders of nodes that bring neighbours together. An order is a permutation: which node comes at each place."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.sort import order_of
from pygfuse.graph.graph import Graph
from pygfuse.transforms.locality import NEAR_BYTES

# neighbours that vote on the community of a node, rounds of voting, and the share of nodes that still move at the end
VOTERS, ROUNDS, SETTLED = 64, 8, 0.01
# there are no communities if after so many rounds fewer votes than this are for the community that a node is in
DOUBTS_AFTER, LEAST_AGREEMENT = 3, 0.1
# edges of a node up to which a search in breadth is worth its time
FEW_NEIGHBOURS = 16


def by_communities(graph: Graph, row_bytes: int) -> Tensor:
    """Nodes by community, each found by propagation of labels: a node joins that of most of its neighbours.

    Nodes are taken one after another and see the moves of those before; a hub asks some of its neighbours. No community
    outgrows a core's cache. They stand in the order of their first nodes, and nodes within them in their own.

    Args:
        graph: The graph, of as many sources as targets.
        row_bytes: Bytes of a row that layers gather.
    """
    labels = _communities(graph, max(2, NEAR_BYTES // row_bytes))
    return _by_label(torch.arange(graph.num_targets) if labels is None else labels)


def _communities(graph: Graph, largest: int) -> Tensor | None:
    """The label of each node's community; None if nodes do not agree on any."""
    num_nodes = graph.num_targets
    labels = torch.arange(num_nodes, dtype=torch.int32)
    sizes, votes = torch.ones_like(labels), torch.zeros_like(labels)
    counts = torch.zeros(3, dtype=torch.int64)
    neighbours = [graph.csr.indptr, graph.csr.index]
    neighbours += [None, None] if is_symmetric(graph) else [graph.csc.indptr, graph.csc.index]
    for number in range(1, ROUNDS + 1):
        _vote(1, *neighbours, labels, sizes, votes, largest, VOTERS, counts)
        moved, agreed, asked = counts.tolist()
        if moved <= SETTLED * num_nodes:
            break
        if number == DOUBTS_AFTER and agreed < LEAST_AGREEMENT * asked:
            return None
    return labels.long()


def _by_label(labels: Tensor) -> Tensor:
    """Nodes by label, labels by the first of their nodes."""
    first = torch.full_like(labels, len(labels))
    first.scatter_reduce_(0, labels, torch.arange(len(labels)), 'amin')
    return order_of(first[labels], len(labels))


def is_symmetric(graph: Graph) -> bool:
    """Whether as many edges go out of each node as come in: then, for all that matters here, edges go both ways."""
    return torch.equal(torch.bincount(graph.csr.index, minlength=graph.num_sources), graph.degree.long())


def _vote_once(part, indptr, index, other_indptr, other_index, labels, sizes, votes, largest, voters, counts):
    """One round: each node takes the label of most of its neighbours among those with room; its own if that ties."""
    moved, agreed, asked = 0, 0, 0
    for node in range(len(labels)):
        own = labels[node]
        begin, end = indptr[node], indptr[node + 1]
        step = max(1, (end - begin) // voters)
        other_begin, other_end, other_step = begin, begin, step
        if other_indptr is not None:
            other_begin, other_end = other_indptr[node], other_indptr[node + 1]
            other_step = max(1, (other_end - other_begin) // voters)
            for q in range(other_begin, other_end, other_step):
                votes[labels[other_index[q]]] += 1
                asked += 1
        for q in range(begin, end, step):
            votes[labels[index[q]]] += 1
            asked += 1
        best, most = own, votes[own]
        for q in range(begin, end, step):
            label = labels[index[q]]
            if votes[label] > most and sizes[label] < largest:
                best, most = label, votes[label]
        if other_indptr is not None:
            for q in range(other_begin, other_end, other_step):
                label = labels[other_index[q]]
                if votes[label] > most and sizes[label] < largest:
                    best, most = label, votes[label]
            for q in range(other_begin, other_end, other_step):
                votes[labels[other_index[q]]] = 0
        for q in range(begin, end, step):
            votes[labels[index[q]]] = 0
        agreed += most
        if best != own:
            sizes[own] -= 1
            sizes[best] += 1
            labels[node] = best
            moved += 1
    counts[0] = moved
    counts[1] = agreed
    counts[2] = asked


_vote = Kernel(_vote_once, 'a round of voting on communities')


def by_cuthill_mckee(graph: Graph, row_bytes: int) -> Tensor:
    """SciPy's order of small bandwidth, of the edges in both directions.

    Raises:
        ImportError: If SciPy is not installed.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    csr, shape = graph.csr, (graph.num_targets, graph.num_sources)
    ones = torch.ones(csr.num_edges, dtype=torch.int8).numpy()
    matrix = csr_matrix((ones, csr.index.numpy(), csr.indptr.numpy()), shape)
    return torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=is_symmetric(graph)).astype('int64'))


def by_degree(graph: Graph, row_bytes: int) -> Tensor:
    """Nodes by the edges that go out of them, the most first."""
    counts = torch.bincount(graph.csr.index, minlength=graph.num_sources)
    most = int(counts.max()) if len(counts) else 0
    return order_of(most - counts, most + 1)


ORDERS: dict[str, Callable[[Graph, int], Tensor]] = {
    'communities': by_communities,
    'reverse_cuthill_mckee': by_cuthill_mckee,
    'degree': by_degree,
}


def candidates(graph: Graph, row_bytes: int) -> Iterator[Tensor]:
    """Orders that may be worth a try, the most promising first; none where a core's cache holds all features.

    By degree only where there are no communities: beside these it has not gained anywhere (docs/performance-notes.md).
    """
    if graph.num_targets * row_bytes <= NEAR_BYTES:
        return
    labels = _communities(graph, max(2, NEAR_BYTES // row_bytes))
    if labels is not None:
        yield _by_label(labels)
    if graph.num_edges <= FEW_NEIGHBOURS * graph.num_targets and importlib.util.find_spec('scipy') is not None:
        yield by_cuthill_mckee(graph, row_bytes)
    if labels is None:
        yield by_degree(graph, row_bytes)
