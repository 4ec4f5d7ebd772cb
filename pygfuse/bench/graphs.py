"""Graphs that are generated: each with the same edges wherever and whenever it is made."""

from __future__ import annotations

import torch
from torch import Tensor

GraphData = tuple[Tensor, int]  # an edge_index, and the number of nodes


def power_law(nodes: int, edges: int, seed: int = 0) -> GraphData:
    """A random graph whose in-degrees follow a power law."""
    generator = torch.Generator().manual_seed(seed)
    popularity = torch.rand(nodes, generator=generator).pow(-1 / 1.5)
    targets = torch.multinomial(popularity, edges, replacement=True, generator=generator)
    sources = torch.randint(nodes, (edges,), generator=generator)
    return torch.stack([sources, targets]), nodes


# Reddit: nodes, edges in both directions, and how wide its degrees are spread: with normal weights of this deviation in
# the exponent, the largest of so many is 44 times their mean, as 21,657 is of 492.
REDDIT_NODES, REDDIT_EDGES, REDDIT_SPREAD = 232_965, 114_615_892, 0.97
_DRAWN_TOGETHER = 2**22


def like_reddit(
    edges: int = REDDIT_EDGES,
    communities: int = 0,
    inside: float = 0.8,
    shuffled: bool = True,
    nodes: int = REDDIT_NODES,
    seed: int = 0,
) -> GraphData:
    """A random graph with Reddit's number of nodes and spread of degrees, every pair in both directions.

    Args:
        edges: Number of edges; Reddit's by default.
        communities: How many communities the nodes are in; 0 for none.
        inside: Of the edges, how many are drawn within a community.
        shuffled: Whether the numbers of nodes say nothing of communities.
        nodes: Number of nodes.
        seed: Of all that is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    # by quantiles, so that the largest degree does not depend on the seed
    quantiles = torch.special.ndtri((torch.arange(nodes, dtype=torch.float64) + 0.5) / nodes)
    weights = (REDDIT_SPREAD * quantiles[torch.randperm(nodes, generator=generator)]).exp()
    before = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    count = max(communities, 1)
    bounds = torch.arange(count + 1) * nodes // count
    community = torch.arange(nodes) * count // nodes
    numbers = torch.randperm(nodes, generator=generator) if shuffled else torch.arange(nodes)
    edge_index = torch.empty(2, edges // 2 * 2, dtype=torch.int64)
    for begin in range(0, edges // 2, _DRAWN_TOGETHER):
        drawn = min(_DRAWN_TOGETHER, edges // 2 - begin)
        chances = torch.rand(3, drawn, dtype=torch.float64, generator=generator)
        first = _drawn(before, chances[0] * before[-1])
        own = community[first]
        low = torch.where(chances[2] < inside, before[bounds[own]], 0.0)
        high = torch.where(chances[2] < inside, before[bounds[own + 1]], before[-1])
        second = _drawn(before, low + chances[1] * (high - low))
        pair = numbers[torch.stack([first, second])]
        edge_index[:, begin : begin + drawn] = pair
        edge_index[:, edges // 2 + begin : edges // 2 + begin + drawn] = pair.flip(0)
    return edge_index, nodes


def _drawn(before: Tensor, values: Tensor) -> Tensor:
    """The nodes in whose share of the weights values lie."""
    return (torch.searchsorted(before, values, right=True) - 1).clamp_(0, len(before) - 2)


def rmat(scale: int, edges: int, skew: float, seed: int) -> Tensor:
    """Edges of a graph of 2^scale nodes: each bit of an edge's ends falls into the first quarter with chance `skew`."""
    generator = torch.Generator().manual_seed(seed)
    rest = (1 - skew) / 3
    ends = torch.zeros(2, edges, dtype=torch.int64)
    for _ in range(scale):
        quarter = torch.multinomial(torch.tensor([skew, rest, rest, rest]), edges, True, generator=generator)
        ends = 2 * ends + torch.stack([quarter // 2, quarter % 2])
    return ends
