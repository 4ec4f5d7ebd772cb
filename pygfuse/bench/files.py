"""Graphs read from raw files under a folder of data.

Those that PyG downloads lie as it leaves them, and are downloaded where they are not there: ``planetoid``, ``amazon``,
``heterophilous`` and ``tu`` are roots of its data sets.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import to_undirected


def pairs_of_text(path: Path, **options: Any) -> Tensor:
    """A list of edges in text: two nodes a line, as SNAP has them with comments after ``#``."""
    return torch.from_numpy(np.loadtxt(path, dtype=np.int64, **options)).t().contiguous()


def pairs_of_csr(path: Path, indptr: str = 'indptr', indices: str = 'indices') -> Tensor:
    """The entries of a CSR matrix, rows first."""
    arrays = np.load(path)
    starts, columns = (torch.from_numpy(arrays[name].astype('int64')) for name in (indptr, indices))
    return torch.stack([torch.arange(len(starts) - 1).repeat_interleave(starts.diff()), columns])


def raw(data: Path, kind: str, root: str, name: str, file: str) -> Path:
    """A raw file of one of PyG's data sets, which downloads it if need be.

    Args:
        data: The folder of data.
        kind: The data set's class.
        root: Its root in that folder.
        name: Its name.
        file: The file in the root.
    """
    path = data / root / file
    if not path.exists():
        from torch_geometric import datasets

        getattr(datasets, kind)(str(data / root), name)
    return path


def raw_planetoid(data: Path, name: str) -> Tensor:
    """Cora, CiteSeer or PubMed, every pair in both directions, as the file has them."""
    path = raw(data, 'Planetoid', 'planetoid', name, f'{name}/raw/ind.{name.lower()}.graph')
    with open(path, 'rb') as file:
        neighbours = pickle.load(file, encoding='latin1')
    return torch.tensor([[node, other] for node, others in neighbours.items() for other in others]).t()


def raw_amazon(data: Path, name: str) -> Tensor:
    """Computers or Photo, in both directions."""
    path = raw(data, 'Amazon', 'amazon', name, f'{name}/raw/amazon_electronics_{name.lower()}.npz')
    return to_undirected(pairs_of_csr(path, 'adj_indptr', 'adj_indices'))


def raw_tu(data: Path, name: str) -> Tensor:
    """All graphs of a TU data set as one."""
    return pairs_of_text(raw(data, 'TUDataset', 'tu', name, f'{name}/raw/{name}_A.txt'), delimiter=',') - 1


def raw_tolokers(data: Path) -> Tensor:
    """Tolokers, in both directions."""
    path = raw(data, 'HeterophilousGraphDataset', 'heterophilous', 'Tolokers', 'tolokers/raw/tolokers.npz')
    edges = np.load(path)['edges']
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
