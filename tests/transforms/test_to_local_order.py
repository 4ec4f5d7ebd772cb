"""Nodes are numbered by an order that brings neighbours together, and everything keeps its meaning."""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from pygfuse.conv import GATConv, GCNConv
from pygfuse.graph.graph import Graph
from pygfuse.transforms import (
    SparseFeatures,
    ToExecutionPaths,
    ToHAG,
    ToLocalOrder,
    in_local_order,
    in_original_order,
    local_nodes,
    to_local_order,
)
from pygfuse.transforms.locality import FAR_BYTES, NEAR_BYTES, gather_cost, new_share
from pygfuse.transforms.node_orders import ORDERS, by_communities, candidates
from tests.support.parity import random_edges

every = pytest.mark.parametrize('order', ORDERS)
NODES, LARGE = 60, 60_000


def communities(num_nodes: int, degree: int, size: int = 300, inside: float = 0.9) -> Tensor:
    """Random edges both ways, most of them within communities, between nodes of shuffled numbers."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(num_nodes, (num_nodes * degree // 2,), generator=generator)
    own = first // size * size + torch.randint(size, first.shape, generator=generator)
    second = torch.randint(num_nodes, first.shape, generator=generator)
    is_inside = torch.rand(first.shape, generator=generator) < inside
    second = torch.where(is_inside, own.clamp(max=num_nodes - 1), second)
    pairs = torch.randperm(num_nodes, generator=generator)[torch.stack([first, second])]
    return torch.cat([pairs, pairs.flip(0)], dim=1)


def data() -> Data:
    """Whose nodes and edges all carry what they were first."""
    edge_index = random_edges(NODES, NODES, 240)
    return Data(
        x=torch.arange(NODES).float().unsqueeze(1),
        y=torch.arange(NODES),
        train_mask=torch.arange(NODES) < 20,
        names=[str(i) for i in range(NODES)],
        array=np.arange(NODES),
        edge_index=edge_index,
        edge_attr=torch.stack([edge_index[0], edge_index[1]], 1).float(),
        edge_label_index=edge_index[:, :7].clone(),
        train_nodes=torch.tensor([3, 5, -1]),
        num_classes_of_data=7,
    )


@every
def test_all_that_belongs_to_nodes_moves_along(order):
    plain = data()
    found = ToLocalOrder(order, node_keys='train_nodes')(plain)
    original = found.original_node
    assert torch.equal(original.sort().values, torch.arange(NODES))
    assert not torch.equal(original, torch.arange(NODES))
    assert torch.equal(found.x.flatten().long(), original)
    assert torch.equal(found.y, original)
    assert torch.equal(found.train_mask, original < 20)
    assert found.names == [str(i) for i in original.tolist()]
    assert found.array.tolist() == original.tolist()
    assert torch.equal(original[found.edge_index], plain.edge_index)
    assert torch.equal(found.edge_attr, plain.edge_attr)
    assert torch.equal(original[found.edge_label_index], plain.edge_label_index)
    assert original[found.train_nodes[:2]].tolist() == [3, 5]
    assert int(found.train_nodes[2]) == -1
    assert found.num_classes_of_data == 7
    # the data that were given stay as they are
    assert torch.equal(plain.y, torch.arange(NODES))
    assert 'original_node' not in plain


@every
def test_outputs_are_put_back(order):
    plain = data()
    found = ToLocalOrder(order)(plain)
    for conv in (GATConv(1, 4), GCNConv(1, 4)):
        expected, out = conv(plain.x, plain.edge_index), conv(found.x, found.edge_index)
        torch.testing.assert_close(in_original_order(out, found), expected)
        torch.testing.assert_close(out, in_local_order(expected, found))
        torch.testing.assert_close(out[local_nodes(torch.tensor([4, 8]), found)], expected[[4, 8]])
        assert not torch.allclose(out, expected)


def test_twice_leads_back_to_the_first_numbers():
    plain = data()
    found = ToLocalOrder('degree')(ToLocalOrder('communities')(plain))
    assert torch.equal(found.y, found.original_node)
    assert torch.equal(in_original_order(found.x, found), plain.x)


def test_the_way_back_of_parts():
    found = ToLocalOrder('degree')(data())
    del found.array
    part = found.subgraph(torch.tensor([1, 5, 7]))
    assert torch.equal(part.y, part.original_node)
    assert torch.equal(in_local_order(torch.arange(NODES), part), part.y)
    with pytest.raises(ValueError, match="'original_node'"):
        in_original_order(part.x, part)
    with pytest.raises(ValueError, match="'original_node'"):
        local_nodes(torch.tensor([1]), part)
    with pytest.raises(ValueError, match="'rows'"):
        in_original_order(found.x[1:], found)
    with pytest.raises(ValueError, match="'rows'"):
        in_local_order(found.x[1:], found)
    with pytest.raises(ValueError, match="'nodes'"):
        local_nodes(torch.tensor([NODES]), found)


def test_it_goes_with_the_data():
    found, buffer = ToLocalOrder('degree')(data()), io.BytesIO()
    torch.save(found, buffer)
    buffer.seek(0)
    for twin in (found.clone(), found.to('cpu'), torch.load(buffer, weights_only=False)):
        assert torch.equal(in_original_order(twin.x, twin), data().x)


def test_other_kinds_of_tensors():
    plain = data()
    x = torch.eye(NODES)
    plain.x, plain.edge_index = SparseFeatures.of(x), EdgeIndex(plain.edge_index, sparse_size=(NODES, NODES))
    found = ToLocalOrder('degree')(plain)
    assert isinstance(found.x, SparseFeatures)
    assert torch.equal(found.x.to_dense(), x[found.original_node])
    assert isinstance(found.edge_index, EdgeIndex)
    assert torch.equal(found.original_node[found.edge_index.as_tensor()], data().edge_index)


def test_what_was_found_for_other_numbers_is_dropped():
    edge_index = torch.cartesian_prod(torch.arange(1, 21), torch.arange(1, 21)).t()
    edge_index = torch.cat([edge_index, torch.tensor([[0, 0], [1, 2]])], dim=1)
    plain = Data(edge_index=edge_index, train_mask=torch.arange(21) < 3, num_nodes=21)
    plain = ToExecutionPaths(2)(ToHAG(for_batches=True, min_saving=1, progress=False)(plain))
    assert plain.hag is not None
    found = ToLocalOrder('degree')(plain)
    assert not torch.equal(found.edge_index, edge_index)
    assert found.hag is None
    assert found.path_distances is None


def test_communities_are_found_and_pay(caplog):
    plain = Data(edge_index=communities(LARGE, 12), num_nodes=LARGE, y=torch.arange(LARGE))
    found = ToLocalOrder()(plain)
    csr = Graph.of(plain.edge_index, num_sources=LARGE, num_targets=LARGE).csr
    before, after = (gather_cost(csr, order, 256) for order in (torch.arange(LARGE), found.original_node))
    assert after < 0.7 * before
    assert not caplog.records
    # once more there is nothing to be gained
    with caplog.at_level(logging.WARNING):
        assert ToLocalOrder()(found).edge_index is found.edge_index
    assert 'left as it was' in caplog.text


def test_a_graph_without_communities_is_left_alone(caplog):
    plain, transform = Data(edge_index=random_edges(LARGE, LARGE, 12 * LARGE), num_nodes=LARGE), ToLocalOrder()
    for _ in range(2):
        found = transform(plain)
        assert found.edge_index is plain.edge_index
        assert 'original_node' not in found
    assert caplog.text.count('left as it was') == 1
    x = torch.randn(LARGE, 1)
    assert in_original_order(x, found) is x
    assert in_local_order(x, found) is x


def test_a_small_saving_is_left_alone():
    """As a step gains less than its gathers, and of web-NotreDame's eighth nothing."""
    plain = Data(edge_index=communities(LARGE, 10, inside=0.75), num_nodes=LARGE)
    graph = Graph.of(plain.edge_index, num_sources=LARGE, num_targets=LARGE)
    costs = [gather_cost(graph.csr, order, 256) for order in (torch.arange(LARGE), *candidates(graph, 256))]
    assert 0.1 < 1 - min(costs) / costs[0] < 0.2
    assert 'original_node' not in ToLocalOrder()(plain)
    assert 'original_node' in ToLocalOrder(least_saving=0.1)(plain)


def test_what_a_cache_holds_is_left_alone():
    plain = Data(edge_index=communities(3000, 10, 30), num_nodes=3000)
    assert [*candidates(Graph.of(plain.edge_index), 256)] == []
    assert ToLocalOrder()(plain).edge_index is plain.edge_index
    assert 'original_node' in ToLocalOrder(row_bytes=1024)(plain)


def test_what_is_walked_in_blocks_is_left_alone(caplog, monkeypatch):
    plain = Data(edge_index=communities(LARGE, 12), num_nodes=LARGE)
    sizes, transform = [], ToLocalOrder(row_bytes=512)
    monkeypatch.setattr(to_local_order, 'count_of_blocks', lambda csr, *size: sizes.append(size) or 2)
    for _ in range(2):
        assert transform(plain).edge_index is plain.edge_index
    assert sizes == [(LARGE, 512)] * 2
    assert caplog.text.count('left as it was') == caplog.text.count('in blocks of nodes') == 1
    # one that is asked for is made whatever it saves
    assert 'original_node' in ToLocalOrder('communities')(plain)


def test_no_community_outgrows_a_cache():
    graph = Graph.of(torch.cartesian_prod(torch.arange(64), torch.arange(64)).t().contiguous())
    assert torch.equal(by_communities(graph, 256), torch.arange(64))
    edges = communities(8000, 20, 1000, inside=1.0)
    order = by_communities(Graph.of(edges, num_sources=8000, num_targets=8000), NEAR_BYTES // 100)
    assert torch.equal(order.sort().values, torch.arange(8000))


def test_directed_edges_vote_both_ways():
    """Of a path through each community in one direction only."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randperm(200, generator=generator).view(10, 20)
    edges = torch.cat([torch.stack([row[i].repeat(20), row]) for row in numbers for i in range(2)], dim=1)
    order = by_communities(Graph.of(edges, num_sources=200, num_targets=200), 256)
    community = torch.empty(200, dtype=torch.int64)
    community[numbers.flatten()] = torch.arange(200) // 20
    assert int((community[order].diff() != 0).sum()) == 9


def test_the_order_does_not_depend_on_the_number_of_threads():
    graph = Graph.of(communities(5000, 10), num_sources=5000, num_targets=5000)
    orders, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            orders.append([order(graph, 256) for order in ORDERS.values()])
    finally:
        torch.set_num_threads(threads)
    for first, second in zip(*orders, strict=True):
        assert torch.equal(first, second)


def test_gathers_that_find_their_row():
    """Rows of three edges each: to themselves, or to others each time."""
    nodes = torch.arange(9000)
    itself = Graph.of(torch.stack([nodes.repeat(3), nodes.repeat(3)])).csr
    assert new_share(itself, nodes, 256, 256 * 3000) == pytest.approx(1 / 3)
    # lines of several rows
    assert new_share(itself, nodes, 16, 64 * 3000) == pytest.approx(1 / 12)
    others = Graph.of(torch.stack([(nodes * 7919) % 9000, nodes])).csr
    assert new_share(others, nodes, 256, 256 * 100) == 1.0
    assert gather_cost(others, nodes, 256) > gather_cost(itself, nodes, 256)
    # more gathers than a window has are of one node
    hub = Graph.of(torch.stack([torch.zeros(5000, dtype=torch.int64)] * 2), num_sources=1, num_targets=1).csr
    assert new_share(hub, torch.zeros(1, dtype=torch.int64), 256, 256 * 100) == 0.01
    assert NEAR_BYTES < FAR_BYTES


@pytest.mark.parametrize(
    ('given', 'expected'),
    [
        ({'order': 'rabbit'}, "'order'"),
        ({'row_bytes': 0}, "'row_bytes'"),
        ({'least_saving': 1.0}, "'least_saving'"),
    ],
)
def test_wrong_options(given, expected):
    with pytest.raises(ValueError, match=expected):
        ToLocalOrder(**given)
    assert repr(ToLocalOrder('degree')) == "ToLocalOrder(order='degree', row_bytes=256)"


def test_wrong_data():
    transform = ToLocalOrder('degree')
    for wrong in (HeteroData(), Batch.from_data_list([data_of_tensors(), data_of_tensors()])):
        with pytest.raises(ValueError, match='of one graph'):
            transform(wrong)
    with pytest.raises(ValueError, match="'edge_index'"):
        transform(Data(x=torch.ones(3, 1)))
    with pytest.raises(ValueError, match='adj_t'):
        transform(ToSparseTensor(layout=torch.sparse_csr)(data_of_tensors()))
    with pytest.raises(ValueError, match="'edge_label_index'"):
        transform(Data(edge_index=torch.tensor([[0], [1]]), edge_label_index=torch.tensor([[5], [0]]), num_nodes=2))


def data_of_tensors() -> Data:
    return Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))


@pytest.mark.parametrize('edge_index', [torch.zeros(2, 0, dtype=torch.int64), torch.tensor([[0, 0], [0, 0]])])
@every
def test_hardly_any_edges(edge_index, order):
    found = ToLocalOrder(order)(Data(edge_index=edge_index, num_nodes=3))
    assert torch.equal(found.original_node.sort().values, torch.arange(3))
    assert ToLocalOrder()(Data(edge_index=edge_index, num_nodes=3)).edge_index is edge_index
