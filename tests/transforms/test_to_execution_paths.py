from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

from pygfuse.conv import GCNConv, SAGEConv
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import known_paths
from pygfuse.partial.paths.policy import execution_paths
from pygfuse.transforms import PathData, ToExecutionPaths, ToHAG
from tests.support.parity import random_edges

LAYERS = 3


def graph(seed: int = 0, num_nodes: int = 60) -> Data:
    edge_index = random_edges(num_nodes, num_nodes, 2 * num_nodes, seed)
    train_mask = torch.rand(num_nodes, generator=torch.Generator().manual_seed(seed)) < 0.1
    return Data(x=torch.randn(num_nodes, 8), edge_index=edge_index, train_mask=train_mask)


def distances(data: Data) -> torch.Tensor:
    """From the definition, with a matrix."""
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data['edge_index'][0], data['edge_index'][1]] = 1
    reached, found = data.train_mask.float(), torch.full((data.num_nodes,), 255)
    for step in range(LAYERS):
        found[(reached > 0) & (found == 255)] = step
        reached = adjacency @ reached
    return found.to(torch.uint8)


def check(data: Data) -> None:
    """The distances are those of the data, and a model that is given the edges walks the paths that follow."""
    assert isinstance(data, PathData)
    assert torch.equal(data.path_distances, distances(data))
    edge_index, nodes = data.edge_index, data.num_nodes
    convs = [SAGEConv(8, 8) for _ in range(LAYERS)]
    x = data.x.clone().requires_grad_()
    with execution_paths(True):
        h = x
        for conv in convs:
            h = conv(h, edge_index)
        h[data.train_mask].sum().backward()
    used = Graph.of(edge_index, num_sources=nodes, num_targets=nodes)
    steps = [int(step) for step in data.path_distances.unique() if step < 255]
    assert len(known_paths(used)) == len(steps)  # none was made on the fly
    for path, step in zip(known_paths(used), steps, strict=True):
        assert torch.equal(path.active.bool(), data.path_distances <= step)
    walked = [conv.note.backward.walked_edges for conv in convs[::-1]]
    assert walked == [path.num_edges for path in known_paths(used)]


def is_dropped(data: Data) -> bool:
    conv, nodes = SAGEConv(8, 8), data.num_nodes
    edge_index = data.edge_index
    with execution_paths(False):
        conv(data.x, edge_index).sum().backward()
    return data.path_distances is None and not known_paths(Graph.of(edge_index, num_sources=nodes, num_targets=nodes))


def test_one_graph():
    plain = graph()
    data = ToExecutionPaths(LAYERS)(plain)
    check(data)
    assert type(plain) is Data
    assert data.x is plain.x
    assert {*data.keys()} == {*plain.keys(), 'execution_paths'}


def test_layers_with_self_loops_know_the_paths():
    data, conv = ToExecutionPaths(2)(graph()), GCNConv(8, 8)
    conv.lin.weight.requires_grad_()
    with execution_paths(True):
        conv(data.x, data.edge_index)[data.train_mask].sum().backward()
    nodes = data.num_nodes
    used = Graph.of(data.edge_index, num_sources=nodes, num_targets=nodes).with_self_loops(nodes)
    assert torch.equal(known_paths(used)[0].active.bool(), data.train_mask)
    assert conv.note.backward.walked_edges == known_paths(used)[0].num_edges < used.num_edges


def test_ways_to_travel():
    data = ToExecutionPaths(LAYERS)(graph())
    file = io.BytesIO()
    torch.save(data, file)
    file.seek(0)
    others = [copy.copy(data), copy.deepcopy(data), data.clone(), data.to('cpu'), pickle.loads(pickle.dumps(data))]
    for other in (*others, torch.load(file, weights_only=False), data.contiguous()):
        check(other)


def test_batches():
    datas = [ToExecutionPaths(LAYERS)(graph(seed, 30 + seed)) for seed in range(5)]
    batch = Batch.from_data_list(datas)
    check(batch)
    check(batch[3])
    for loaded in DataLoader(datas, batch_size=2):
        check(loaded)
    check(ToExecutionPaths(LAYERS)(Batch.from_data_list([graph(seed) for seed in range(3)])))


def test_with_a_hag():
    hag = ToHAG(for_batches=True, min_saving=1)
    for data in (ToExecutionPaths(LAYERS)(hag(graph())), hag(ToExecutionPaths(LAYERS)(graph()))):
        assert isinstance(data, PathData)
        assert data.hag is not None
        assert torch.equal(data.path_distances, distances(data))


def test_other_edges_or_another_mask_drop_the_paths():
    changes = [
        lambda data: setattr(data, 'edge_index', data.edge_index[:, 1:]),
        lambda data: setattr(data, 'edge_index', data.edge_index.flip(0)),
        lambda data: data.edge_index.copy_(random_edges(60, 60, 120, 9)),
        lambda data: data.train_mask.logical_not_(),
        lambda data: setattr(data, 'train_mask', torch.arange(60) == 1),
        lambda data: delattr(data, 'train_mask'),
    ]
    for change in changes:
        data = ToExecutionPaths(LAYERS)(graph())
        change(data)
        assert is_dropped(data)
    data = ToExecutionPaths(LAYERS)(graph())
    assert is_dropped(data.subgraph(torch.arange(60) < 50))
    data.train_mask = data.train_mask.clone()
    check(data)
    # the order of edges does not matter
    data.edge_index = data.edge_index.flip(1)
    check(data)


def test_edges_that_were_read_and_then_changed():
    data = ToExecutionPaths(LAYERS)(graph())
    data.edge_index  # noqa: B018  what belongs to this tensor goes when it is written to
    data.edge_index.copy_(random_edges(60, 60, 120, 9))
    assert is_dropped(data)


def test_a_mask_changed_after_the_edges_were_read_gives_no_wrong_gradient():
    data, conv = ToExecutionPaths(1)(graph()), SAGEConv(8, 8)
    edge_index = data.edge_index
    for _ in range(2):
        found = []
        for on in (False, True):
            conv.zero_grad()
            with execution_paths(on):
                conv(data.x, edge_index)[data.train_mask].sum().backward()
            found.append([parameter.grad.clone() for parameter in conv.parameters()])
        assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
        data.train_mask.logical_not_()


def test_in_a_composition():
    check(T.Compose([T.ToUndirected(), ToExecutionPaths(LAYERS), T.NormalizeFeatures()])(graph()))


def test_the_other_flow():
    edge_index = torch.tensor([[1, 2, 3], [0, 1, 2]])
    data = Data(edge_index=edge_index, train_mask=torch.tensor([False, False, False, True]), num_nodes=4)
    assert ToExecutionPaths(2, flow='target_to_source')(data).path_distances.tolist() == [255, 255, 1, 0]


@pytest.mark.parametrize(
    ('data', 'message'),
    [
        (HeteroData(), "Expected 'data' to be a Data, a Batch of them or a PathData"),
        (Data(train_mask=torch.ones(3) > 0), "Expected 'data' to have an 'edge_index'"),
        (Data(edge_index=torch.zeros(2, 1).long(), num_nodes=3), "Expected 'train_mask' .* of 3 nodes .got nothing"),
        (Data(edge_index=torch.zeros(2, 1).long(), num_nodes=3, train_mask=torch.ones(3, 2)), r'shape \[3, 2\]'),
    ],
)
def test_what_is_wrong_is_named(data, message):
    with pytest.raises(ValueError, match=message):
        ToExecutionPaths(2)(data)


@pytest.mark.parametrize('num_layers', [0, 256, 1.5])
def test_layers_out_of_range(num_layers):
    with pytest.raises(ValueError, match="Expected 'num_layers' to be an integer from 1 to 255"):
        ToExecutionPaths(num_layers)
