"""Data sets that PyG downloads."""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.bench.graphs import GraphData


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


def reddit(root: str) -> GraphData:
    """232,965 nodes, 114,615,892 edges."""
    from torch_geometric.datasets import Reddit

    data = Reddit(root)[0]
    return data.edge_index, data.num_nodes


def _under(folder: str, load: Callable[..., GraphData], **options: str) -> Callable[[str], GraphData]:
    """A loader of what lies in a folder under a root."""
    return lambda root: load(f'{root}/{folder}', **options)


# by name, what loads one of a folder in which each kind has a folder of its own
DATASETS: dict[str, Callable[[str], GraphData]] = {
    **{name: _under('planetoid', planetoid, name=name) for name in ('Cora', 'CiteSeer', 'PubMed')},
    **{name: _under('amazon', amazon, name=name) for name in ('Computers', 'Photo')},
    'Tolokers': _under('heterophilous', tolokers),
    'Reddit': _under('reddit', reddit),
}
