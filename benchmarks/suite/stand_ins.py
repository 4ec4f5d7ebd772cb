"""Data sets for PyG's examples: Planetoid as it is, others generated.

These have the numbers of nodes, features and classes that PyG documents, features and labels at random, and as many
edges, between nodes at random, where a function does not say otherwise: of edges between nodes of near numbers, each
is there once, which leaves fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.datasets as datasets
from torch import Tensor
from torch_geometric.data import Data, HeteroData, InMemoryDataset

# neighbours are at most so many numbers away
_NEAR = 6
Transform = Callable[[Any], Any] | None


class Graphs(InMemoryDataset):
    """Graphs in memory."""

    def __init__(self, graphs: Sequence[Data], transform: Transform, pre_transform: Transform = None) -> None:
        super().__init__(None, transform)
        if pre_transform is not None:
            graphs = [pre_transform(graph) for graph in graphs]
        self.data, self.slices = self.collate(graphs)


class OneGraph(list):
    """A data set of one graph of several types."""

    def __init__(self, graph: HeteroData, transform: Transform) -> None:
        super().__init__([graph if transform is None else transform(graph)])
        self.data = self._data = self[0]


def near_edges(nodes: int, edges: int) -> Tensor:
    """Edges both ways between nodes of near numbers: as many as these, less those drawn more than once."""
    first = torch.randint(nodes, (edges // 2,))
    second = (first + torch.randint(1, _NEAR, (edges // 2,))) % nodes
    return torch.unique(torch.stack([torch.cat([first, second]), torch.cat([second, first])]), dim=1)


def sizes(count: int, mean: int) -> list[int]:
    """Numbers of nodes of so many graphs, up to two fifths above and below a mean."""
    return [max(4, int(mean * share)) for share in (0.6 + 0.8 * torch.rand(count)).tolist()]


def ppi(root: str, split: str = 'train', transform: Transform = None, pre_transform: Transform = None) -> Graphs:
    """``PPI``: 20 graphs of 2,372 nodes and 22,000 edges (of 61,000) to train on, 50 features, 121 labels."""
    graphs = []
    for _ in range(20 if split == 'train' else 2):
        x, y = torch.rand(2372, 50), (torch.rand(2372, 121) > 0.7).float()
        graphs.append(Data(x=x, edge_index=near_edges(2372, 66_000), y=y))
    return Graphs(graphs, transform, pre_transform)


def zinc(
    root: str, subset: bool = False, split: str = 'train', transform: Transform = None, pre_transform: Transform = None
) -> Graphs:
    """``ZINC``: molecules of 23 atoms and 45 edges (of 50); fewer of them."""
    graphs = []
    for nodes in sizes(2000 if split == 'train' else 200, 23):
        edge_index = near_edges(nodes, 50)
        kinds = torch.randint(21, (nodes, 1)), torch.randint(4, (edge_index.shape[1],))
        graphs.append(Data(x=kinds[0], edge_index=edge_index, edge_attr=kinds[1], y=torch.randn(1)))
    return Graphs(graphs, transform, pre_transform)


def proteins(root: str, name: str, transform: Transform = None, **_: Any) -> Graphs:
    """``TUDataset``, PROTEINS whatever its name: 1,113 graphs of 39 nodes and 120 edges (of 146), three features."""
    graphs = []
    for nodes in sizes(1113, 39):
        x = F.one_hot(torch.randint(3, (nodes,)), 3).float()
        graphs.append(Data(x=x, edge_index=near_edges(nodes, 146), y=torch.randint(2, (1,))))
    return Graphs(graphs, transform)


def wikipedia(root: str, name: str, *_: Any, transform: Transform = None, **__: Any) -> Graphs:
    """``WikipediaNetwork`` of the name chameleon: 2,277 nodes, 36,101 edges, 2,325 features, ten splits."""
    data = Data(x=torch.randn(2277, 2325), edge_index=torch.randint(2277, (2, 36_101)), y=torch.randint(5, (2277,)))
    shares = torch.rand(2277, 10)
    data.train_mask, data.val_mask, data.test_mask = shares < 0.5, (shares >= 0.5) & (shares < 0.7), shares >= 0.7
    return Graphs([data if transform is None else transform(data)], None)


def of_types(nodes: Mapping[str, tuple[int, int]], edges: Mapping[tuple[str, str, str], int]) -> HeteroData:
    """A graph of these numbers of nodes and features of each type, and of edges of each."""
    data = HeteroData()
    for kind, (count, features) in nodes.items():
        data[kind].num_nodes = count
        if features:
            data[kind].x = torch.randn(count, features)
    for (source, relation, target), count in edges.items():
        ends = [torch.randint(nodes[kind][0], (count,)) for kind in (source, target)]
        data[source, relation, target].edge_index = torch.stack(ends)
    return data


def dblp(root: str, transform: Transform = None) -> OneGraph:
    """``DBLP``: authors, papers, terms and conferences; authors have one of four labels."""
    nodes = {'author': (4057, 334), 'paper': (14_328, 4231), 'term': (7723, 50), 'conference': (20, 0)}
    counts = {'author': 19_645, 'term': 85_810, 'conference': 14_328}
    edges = {}
    for kind, count in counts.items():
        edges |= {(kind, 'to', 'paper'): count, ('paper', 'to', kind): count}
    data = of_types(nodes, edges)
    authors, share = data['author'], torch.rand(4057)
    authors.y = torch.randint(4, (4057,))
    authors.train_mask, authors.val_mask, authors.test_mask = share < 0.1, (share >= 0.1) & (share < 0.2), share >= 0.2
    return OneGraph(data, transform)


def movie_lens(root: str, transform: Transform = None, **_: Any) -> OneGraph:
    """``MovieLens``: 610 users and their 100,836 ratings of 9,742 movies."""
    rates = ('user', 'rates', 'movie')
    data = of_types({'movie': (9742, 404), 'user': (610, 0)}, {rates: 100_836})
    data[rates].edge_label = torch.randint(6, (100_836,))
    data[rates].time = torch.arange(100_836)
    return OneGraph(data, transform)


def planetoid(root: str | None) -> Callable[..., Any]:
    """``Planetoid`` below another folder than a script names."""
    kind = datasets.Planetoid
    return lambda below, *args, **kwargs: kind(below if root is None else root, *args, **kwargs)


def put_in_place(root: str | None) -> None:
    """Puts them in the place of PyG's classes.

    Args:
        root: Where Planetoid lies; None: where a script says.
    """
    found = {'PPI': ppi, 'ZINC': zinc, 'TUDataset': proteins, 'WikipediaNetwork': wikipedia, 'DBLP': dblp}
    for name, dataset in (found | {'MovieLens': movie_lens, 'Planetoid': planetoid(root)}).items():
        setattr(datasets, name, dataset)
