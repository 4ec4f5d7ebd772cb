"""The graphs that benchmarks run on: generated, downloaded by PyG, or read from raw files under a folder of data."""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from suite.case import Options

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


# Data sets that PyG downloads.


def tolokers(root: str) -> GraphData:
    """11,758 nodes, 1,038,000 edges."""
    from torch_geometric.datasets import HeterophilousGraphDataset

    data = HeterophilousGraphDataset(root, 'Tolokers')[0]
    return data.edge_index, data.num_nodes


def planetoid(root: str, name: str) -> GraphData:
    """Cora, CiteSeer or PubMed."""
    from torch_geometric.datasets import Planetoid

    data = Planetoid(root, name)[0]
    return data.edge_index, data.num_nodes


def amazon(root: str, name: str) -> GraphData:
    """Computers or Photo."""
    from torch_geometric.datasets import Amazon

    data = Amazon(root, name)[0]
    return data.edge_index, data.num_nodes


# Raw files under a folder of data.


def pairs_of_text(path: Path, **options: Any) -> Tensor:
    """A list of edges in text: two nodes a line, as SNAP has them with comments after ``#``."""
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, **options)).t().contiguous()


def pairs_of_csr(path: Path, indptr: str = 'indptr', indices: str = 'indices') -> Tensor:
    """The entries of a CSR matrix, rows first."""
    arrays = np.load(path)
    starts, columns = (torch.from_numpy(arrays[name].astype('int64')) for name in (indptr, indices))
    return torch.stack([torch.arange(len(starts) - 1).repeat_interleave(starts.diff()), columns])


def raw_planetoid(data: Path, name: str) -> Tensor:
    """Cora, CiteSeer or PubMed, every pair in both directions, as the file has them."""
    with open(data / f'planetoid/{name}/raw/ind.{name.lower()}.graph', 'rb') as file:
        neighbours = pickle.load(file, encoding='latin1')
    return torch.tensor([[node, other] for node, others in neighbours.items() for other in others]).t()


def raw_amazon(data: Path, name: str) -> Tensor:
    """Computers or Photo, in both directions."""
    path = data / f'amazon/{name}/raw/amazon_electronics_{name.lower()}.npz'
    return to_undirected(pairs_of_csr(path, 'adj_indptr', 'adj_indices'))


def raw_tu(data: Path, name: str) -> Tensor:
    """All graphs of a TU data set as one."""
    return pairs_of_text(data / f'tu/{name}/raw/{name}_A.txt', delimiter=',') - 1


def raw_tolokers(data: Path) -> Tensor:
    """Tolokers, in both directions."""
    edges = np.load(data / 'heterophilous/tolokers/raw/tolokers.npz')['edges']
    return to_undirected(torch.from_numpy(edges.astype('int64')).t())


def ego_twitter(data: Path) -> Tensor:
    """ego-Twitter, each pair once."""
    return pairs_of_csr(data / 'snap/ego-twitter-undirected/ego-twitter-undirected.npz').flip(0)


def web_notredame(data: Path) -> Tensor:
    """web-NotreDame, directed."""
    return pairs_of_text(data / 'snap/web-NotreDame/web-NotreDame.txt.gz')


def github(data: Path) -> Tensor:
    """Developers on GitHub, each pair once."""
    return pairs_of_text(data / 'musae/git_edges.csv.gz', delimiter=',', skiprows=1)


Loader = Callable[[Path], Tensor]


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """The options that `chosen_graph` reads."""
    parser.add_argument('--root', default='data/Tolokers', help='where PyG keeps Tolokers, or downloads it to')
    parser.add_argument('--planetoid', metavar='NAME', help='Cora, CiteSeer or PubMed instead, kept under ROOT')
    parser.add_argument('--snap', metavar='FILE', help='a list of edges in text instead, for example web-NotreDame')
    parser.add_argument('--power-law', nargs=2, type=int, metavar=('NODES', 'EDGES'), help='a generated graph instead')


SMALL = {'power_law': (200, 2000)}  # options of a quick run


def chosen_graph(options: Options) -> GraphData:
    """The graph that the options name; it is read once."""
    if not hasattr(options, 'graph'):
        options.graph = _read(options)
    return options.graph


def _read(options: Options) -> GraphData:
    if options.power_law:
        return power_law(*options.power_law)
    if options.snap:
        edge_index = pairs_of_text(Path(options.snap))
        return edge_index, int(edge_index.max()) + 1
    return planetoid(options.root, options.planetoid) if options.planetoid else tolokers(options.root)


def graph_settings(options: Options) -> dict[str, Any]:
    """What a result says of the graph."""
    edge_index, num_nodes = chosen_graph(options)
    name = 'power law' if options.power_law else options.planetoid or 'Tolokers'
    name = Path(options.snap).name.partition('.')[0] if options.snap else name
    return {'graph': name, 'nodes': num_nodes, 'edges': edge_index.shape[1]}


def layer_settings(options: Options) -> dict[str, Any]:
    """What a result says of the graph and of the layers' width."""
    return {**graph_settings(options), 'heads': options.heads, 'channels': options.channels}
