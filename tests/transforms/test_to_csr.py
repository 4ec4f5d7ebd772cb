"""Edges by target, prepared once: nothing is sorted in a step, and nothing but their order changes."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import ClusterData, ClusterLoader, DataLoader, NeighborLoader
from torch_geometric.utils import trim_to_layer

from pygfuse.conv import GATConv, GCNConv
from pygfuse.cpu.edges import sort
from pygfuse.transforms import ToCSR, ToHAG
from tests.support.parity import random_edges


def graph(seed: int = 0, num_nodes: int = 30, num_edges: int = 200) -> Data:
    edge_index = random_edges(num_nodes, num_nodes, num_edges, seed)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    # each edge names itself
    edge_attr = (edge_index[0] * num_nodes + edge_index[1]).unsqueeze(1).float()
    return Data(x=torch.randn(num_nodes, 8), edge_index=edge_index, edge_attr=edge_attr, num_nodes=num_nodes)


@pytest.fixture
def never_sorts(monkeypatch):
    """Layers find their edges by target."""
    take = sort.sort_by_target

    def checked(targets, *arguments):
        assert bool((targets.diff() >= 0).all())
        return take(targets, *arguments)

    monkeypatch.setattr(sort, 'sort_by_target', checked)


def run(data: Data) -> None:
    for conv in (GCNConv(8, 4), GATConv(8, 4)):
        conv(data.x, data.edge_index).sum().backward()


def test_edges_come_by_target_with_what_belongs_to_them():
    plain = graph()
    data = ToCSR()(plain)
    order = plain.edge_index[1].argsort(stable=True)
    assert torch.equal(data.edge_index, plain.edge_index[:, order])
    assert torch.equal(data.edge_attr, plain.edge_attr[order])
    assert data.x is plain.x
    assert not torch.equal(plain.edge_index, data.edge_index)
    # once more changes nothing
    assert ToCSR()(data).edge_index is data.edge_index


def test_results_are_the_same_bits():
    plain, conv = graph(), GATConv(8, 4, edge_dim=1)
    data = ToCSR()(plain)
    assert torch.equal(conv(plain.x, plain.edge_index, plain.edge_attr), conv(data.x, data.edge_index, data.edge_attr))


def test_reversed_flow():
    data = ToCSR(flow='target_to_source')(graph())
    assert bool((data.edge_index[0].diff() >= 0).all())


@pytest.mark.parametrize('num_workers', [0, 2])
def test_batches_are_not_sorted(num_workers, request):
    graphs = [ToCSR()(graph(seed)) for seed in range(6)]
    request.getfixturevalue('never_sorts')
    for batch in DataLoader(graphs, batch_size=3, num_workers=num_workers):
        run(batch)
        run(pickle.loads(pickle.dumps(batch)).to('cpu'))
        for part in batch.to_data_list():
            run(part)


def test_a_batch_can_be_transformed_itself():
    graphs = [graph(seed) for seed in range(3)]
    batch = ToCSR()(Batch.from_data_list(graphs))
    for found, plain in zip(batch.to_data_list(), graphs, strict=True):
        assert torch.equal(found.edge_index, ToCSR()(plain).edge_index)


@pytest.mark.filterwarnings('ignore:Using .NeighborSampler. without')
@pytest.mark.parametrize('num_workers', [0, 2])
@pytest.mark.parametrize('transform', [None, ToCSR()])
def test_sampled_neighbourhoods_are_not_sorted(num_workers, transform, never_sorts, needs_sampler):
    for batch in NeighborLoader(graph(), [5, 3], batch_size=8, transform=transform, num_workers=num_workers):
        assert torch.equal(batch.edge_attr.flatten(), (batch.n_id[batch.edge_index] * torch.tensor([[30], [1]])).sum(0))
        run(batch)


class CollatedAndSorted:
    """Goes to workers, which Python no longer forks from 3.14 on."""

    def __init__(self, collate):
        self.collate = collate

    def __call__(self, parts):
        return ToCSR()(self.collate(parts))


def test_a_loader_may_run_it_after_collation(monkeypatch):
    data = graph(num_edges=400)
    monkeypatch.setattr(ClusterData, '_metis', lambda self, edges, nodes: torch.arange(nodes) % 3)
    loader = ClusterLoader(ClusterData(data, 3, log=False), batch_size=2, num_workers=2)
    loader.collate_fn = CollatedAndSorted(loader.collate_fn)
    for batch in loader:
        assert bool((batch.edge_index[1].diff() >= 0).all())
        assert batch.edge_attr.shape[0] == batch.edge_index.shape[1]


def test_sampled_edges_stay_in_their_steps():
    data = graph()
    data.num_sampled_edges = [100, data.num_edges - 100]
    assert ToCSR()(data).edge_index is data.edge_index
    _, edges, _ = trim_to_layer(1, [8, 22], data.num_sampled_edges, data.x, ToCSR()(data).edge_index)
    assert torch.equal(edges, data.edge_index[:, :100])


def test_types_of_edges():
    data, plain = HeteroData(), graph()
    data['a'].x, data['b'].x = torch.randn(30, 2), torch.randn(30, 2)
    data['a', 'to', 'b'].edge_index, data['a', 'to', 'b'].edge_attr = plain.edge_index, plain.edge_attr
    data['b', 'to', 'a'].edge_index = plain.edge_index.flip(0)
    found, expected = ToCSR()(data), ToCSR()(plain)
    assert torch.equal(found['a', 'to', 'b'].edge_index, expected.edge_index)
    assert torch.equal(found['a', 'to', 'b'].edge_attr, expected.edge_attr)
    assert bool((found['b', 'to', 'a'].edge_index[1].diff() >= 0).all())


def test_a_hag_stays():
    data = ToCSR()(ToHAG(for_batches=True, min_saving=1, progress=False)(graph(num_nodes=10, num_edges=90)))
    assert data.hag is not None


def test_an_edge_index_of_pyg():
    plain = graph()
    found = ToCSR()(Data(edge_index=EdgeIndex(plain.edge_index, sparse_size=(30, 30)), num_nodes=30))
    assert torch.equal(found.edge_index.as_tensor(), ToCSR()(plain).edge_index)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="'flow'"):
        ToCSR(flow='sideways')
    with pytest.raises(ValueError, match="'edge_index'"):
        ToCSR()(Data(x=torch.randn(3, 2)))
    with pytest.raises(ValueError, match='shape'):
        ToCSR()(Data(edge_index=torch.zeros(3, 4, dtype=torch.long), num_nodes=3))
    assert repr(ToCSR()) == "ToCSR(flow='source_to_target')"
