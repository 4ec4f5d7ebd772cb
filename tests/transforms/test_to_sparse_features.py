"""Features are kept sparse where few are not zero, and go with the data."""

from __future__ import annotations

import io

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader, NeighborLoader

from pygfuse.conv import GCNConv
from pygfuse.transforms import SparseFeatures, ToSparseFeatures
from tests.support.parity import random_edges


def data_with(density: float, num_nodes: int = 50) -> Data:
    torch.manual_seed(0)
    x = torch.rand(num_nodes, 60) * (torch.rand(num_nodes, 60) < density)
    return Data(x=x, edge_index=random_edges(num_nodes, num_nodes, 300), y=torch.zeros(num_nodes))


def test_it_is_done_where_it_pays():
    plain = data_with(0.05)
    data = ToSparseFeatures()(plain)
    assert isinstance(data.x, SparseFeatures)
    assert torch.equal(data.x.to_dense(), plain.x)
    assert type(plain.x) is torch.Tensor
    assert type(ToSparseFeatures()(data_with(0.5)).x) is torch.Tensor
    assert type(ToSparseFeatures(max_density=0.01)(plain).x) is torch.Tensor
    assert ToSparseFeatures()(data).x is data.x
    assert data.num_nodes == 50
    assert data.num_features == 60


def test_what_it_passes_over():
    data = Data(x=torch.zeros(3, 3, dtype=torch.long), pos=torch.zeros(3, 3), num_nodes=3)
    assert ToSparseFeatures()(data).x is data.x
    assert isinstance(ToSparseFeatures(['x', 'pos'])(data).pos, SparseFeatures)
    assert 'x' not in ToSparseFeatures()(Data(num_nodes=3))


def test_types_of_nodes():
    data = HeteroData()
    data['a'].x, data['b'].x = torch.eye(9), torch.ones(4, 2)
    found = ToSparseFeatures()(data)
    assert isinstance(found['a'].x, SparseFeatures)
    assert type(found['b'].x) is torch.Tensor


def test_it_goes_with_the_data():
    plain = data_with(0.05)
    data, buffer = ToSparseFeatures()(plain), io.BytesIO()
    torch.save(data, buffer)
    buffer.seek(0)
    for twin in (data.clone(), data.to('cpu'), torch.load(buffer, weights_only=False), data.subgraph(torch.arange(50))):
        assert isinstance(twin.x, SparseFeatures)
        assert torch.equal(twin.x.to_dense(), plain.x)


@pytest.mark.parametrize('num_workers', [0, 1])
@pytest.mark.filterwarnings('ignore:Using .NeighborSampler. without')
def test_loaders(num_workers, needs_sampler):
    plain = data_with(0.05)
    data = ToSparseFeatures()(plain)
    batch = next(iter(DataLoader([data, data], batch_size=2, num_workers=num_workers)))
    assert torch.equal(batch.x.to_dense(), torch.cat([plain.x, plain.x]))
    try:
        loader = NeighborLoader(data, [4, 3], batch_size=5, num_workers=num_workers)
    except ImportError as error:
        pytest.skip(str(error))
    for batch in loader:
        assert torch.equal(batch.x.to_dense(), plain.x[batch.n_id])
        GCNConv(60, 4)(F.dropout(batch.x), batch.edge_index).sum().backward()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="'max_density'"):
        ToSparseFeatures(max_density=2)
    assert repr(ToSparseFeatures()) == "ToSparseFeatures(attrs=['x'], max_density=0.2)"
