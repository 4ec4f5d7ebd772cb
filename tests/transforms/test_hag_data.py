from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader, NeighborLoader

from pygfuse.hag.attach import attached
from pygfuse.transforms import HagData, ToHAG, hag_data
from tests.support.parity import random_edges

ALL = ToHAG(capacity=None, min_saving=1, for_batches=True)


@pytest.fixture(autouse=True)
def every_hag_pays(monkeypatch):
    """Small graphs are to be aggregated over their HAGs here."""
    monkeypatch.setattr(hag_data, 'why_not_worth', lambda hag: None)


def graph(seed: int) -> Data:
    num_nodes = 8 + 3 * seed
    edge_index = random_edges(num_nodes, num_nodes, 9 * num_nodes, seed)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return Data(x=torch.randn(num_nodes, 4), edge_index=edge_index, y=torch.tensor([seed]))


def graphs(count: int = 5) -> list[Data]:
    return [ALL(graph(seed)) for seed in range(count)]


def same_edges(first, second) -> bool:
    return sorted(first.t().tolist()) == sorted(second.t().tolist())


def check(data: Data) -> None:
    """The HAG stands for the edges, and layers find it."""
    assert isinstance(data, HagData)
    assert data.hag.num_aggregation_nodes > 0
    assert same_edges(data.hag.cover(), data.edge_index)
    assert same_edges(attached(data.edge_index).hag().cover(), data.edge_index)


def is_dropped(data: Data) -> bool:
    entry = attached(data.edge_index)
    return getattr(data, 'hag', None) is None and (entry is None or isinstance(entry.hag(), str))


def test_one_graph():
    plain = graph(3)
    data = ALL(plain)
    check(data)
    assert type(plain) is Data
    assert hag_data.KEY not in plain
    assert data.x is plain.x
    assert 'hag_level' in repr(data)


def test_batches():
    data_list = graphs()
    batch = Batch.from_data_list(data_list)
    check(batch)
    assert batch.hag.num_aggregation_nodes == sum(data.hag.num_aggregation_nodes for data in data_list)
    assert batch.hag.depth == max(data.hag.depth for data in data_list)
    for back, data in zip(batch.to_data_list(), data_list, strict=True):
        check(back)
        assert torch.equal(back.hag.targets.index, data.hag.targets.index)


@pytest.mark.parametrize('num_workers', [0, 2])
def test_loaders(num_workers):
    for batch in DataLoader(graphs(), batch_size=2, num_workers=num_workers):
        check(batch)


def test_a_batch_can_be_transformed_itself():
    batch = ALL(Batch.from_data_list([graph(0), graph(1)]))
    check(batch)
    assert isinstance(batch, Batch)
    assert batch.num_graphs == 2


class Stored(InMemoryDataset):
    def process(self):
        self.save([self.pre_transform(graph(seed)) for seed in range(4)], self.processed_paths[0])

    @property
    def processed_file_names(self):
        return 'data.pt'


def test_datasets(tmp_path):
    for _ in range(2):  # written, then read again
        dataset = Stored(str(tmp_path), pre_transform=ALL)
        dataset.load(dataset.processed_paths[0], HagData)
        for data in dataset:
            check(data)
        for batch in DataLoader(dataset, batch_size=3):
            check(batch)


def test_copies_and_files():
    data = graphs()[2]
    buffer = io.BytesIO()
    torch.save(data, buffer)
    buffer.seek(0)
    twins = [copy.copy(data), copy.deepcopy(data), data.clone(), pickle.loads(pickle.dumps(data))]
    twins.append(torch.load(buffer, weights_only=False))
    twins.append(pickle.loads(pickle.dumps(Batch.from_data_list([data, data]))))
    for twin in twins:
        check(twin)
    check(data.to('cpu'))


def test_it_moves_with_the_data():
    moved = copy.copy(graphs()[2]).to('meta')
    assert all(tensor.device.type == 'meta' for tensor in moved[hag_data.KEY].values())
    assert 'device' in attached(moved.edge_index).hag()


@pytest.mark.parametrize(
    'change',
    [
        lambda data: data.subgraph(torch.arange(6)),
        lambda data: data.edge_subgraph(torch.arange(5)),
        T.ToUndirected(),
        T.AddSelfLoops(),
        T.RandomLinkSplit(is_undirected=False),
        lambda data: next(iter(NeighborLoader(data, [2], batch_size=3))),
    ],
)
def test_it_is_dropped_when_the_edges_change(change):
    try:
        changed = change(graphs()[3])
    except ImportError as error:
        pytest.skip(str(error))
    changed = changed[0] if isinstance(changed, tuple) else changed
    assert is_dropped(changed)


def test_it_is_dropped_when_edges_are_written_to():
    data = graphs()[3]
    edge_index = data.edge_index
    check(data)
    edge_index[0, 0] = (edge_index[0, 0] + 1) % data.num_nodes
    assert is_dropped(data)


def test_the_order_of_edges_does_not_matter():
    data = graphs()[3]
    data.edge_index = data.edge_index[:, torch.randperm(data.num_edges)]
    check(data)


def test_an_edge_index_of_pyg():
    plain = graph(2)
    expected = ALL(plain)
    found = ALL(Data(edge_index=EdgeIndex(plain.edge_index, sparse_size=(14, 14)), num_nodes=14))
    assert same_edges(found.hag.cover(), plain.edge_index)
    assert torch.equal(found[hag_data.KEY]['hag_fingerprint'], expected[hag_data.KEY]['hag_fingerprint'])


def test_nodes_out_of_range():
    data = graphs()[3]
    for node in (-1, 1000):
        wrong = copy.copy(data)
        wrong.edge_index = data.edge_index.clone()
        wrong.edge_index[1, 2] = node
        assert is_dropped(wrong)


def test_nothing_keeps_the_edges_alive():
    import gc
    import weakref

    data = graphs()[2]
    alive = weakref.ref(data.edge_index)
    check(data)
    del data
    gc.collect()
    assert alive() is None


def test_a_graph_that_a_hag_does_not_serve_is_left_as_it_was(caplog):
    data = Data(edge_index=torch.stack([torch.arange(29), torch.arange(1, 30)]), num_nodes=30)
    transform = ToHAG()
    left = transform(data)
    assert type(left) is Data
    assert left.to_dict() == data.to_dict()
    assert 'left as it was' in caplog.text
    transform(data)
    assert caplog.text.count('left as it was') == 1


def test_other_data_are_refused():
    class Mine(Data):
        pass

    class MineWithHag(HagData):
        pass

    with pytest.raises(ValueError, match='HagData'):
        ALL(Mine(edge_index=random_edges(5, 5, 30), num_nodes=5))
    with pytest.raises(ValueError, match='HagData'):
        ALL(HeteroData())
    with pytest.raises(ValueError, match='edge_index'):
        ALL(Data(x=torch.randn(3, 2)))
    mine = ALL(MineWithHag(edge_index=random_edges(5, 5, 60), num_nodes=5))
    assert type(mine) is MineWithHag
    check(mine)


def test_text():
    assert repr(ToHAG(capacity=7)).startswith('ToHAG(capacity=7, min_redundancy=2')
