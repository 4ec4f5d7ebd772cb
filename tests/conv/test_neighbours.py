"""Layers whose message is the neighbour: GraphSAGE, GraphConv, GIN."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn

import pygfuse
from tests.support import cases as table
from tests.support.adjacencies import FLOWS
from tests.support.cases import FEATURES, GCN, GIN, GRAPH, GRAPH_WEIGHTS, SAGE
from tests.support.parity import ADJACENCIES, GRAPHS, random_edges

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor')

RANDOM = GRAPHS['random']()
LAYERS = pytest.mark.parametrize('layer', [SAGE, GRAPH, GIN], ids=str)
AGGREGATIONS = ['add', 'mean', 'max', 'min']


def outputs_and_gradients(layer, edge_index, aggr: str, x: torch.Tensor, runs_fused: bool):
    found = []
    pyg, fused = layer.pair(torch.float64, aggr=aggr)
    for conv in (pyg, fused):
        leaf = x.double().requires_grad_()
        out = conv(leaf, edge_index)
        found.append((out, *torch.autograd.grad(out.square().sum(), [leaf, *conv.parameters()])))
    assert (fused.note.reason is None) == runs_fused
    return zip(found[1], found[0], strict=True)


def with_values(adjacency: str, values: torch.Tensor):
    matrix = ADJACENCIES['COO'](RANDOM)
    if adjacency == 'SparseTensor':
        source, target = matrix.indices().flip(0)
        return ADJACENCIES[adjacency](table.Example(torch.stack([source, target]), 60, 60)).set_value(values, 'coo')
    matrix = torch.sparse_coo_tensor(matrix.indices(), values, matrix.shape, is_coalesced=True)
    return matrix if adjacency == 'COO' else matrix.to_sparse_csr()


@LAYERS
@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
def test_values_of_sparse_adjacencies(adjacency, aggr, layer, request):
    """All three multiply by the values of a torch.sparse matrix, GraphConv by those of a SparseTensor too."""
    runs_fused = aggr in ('add', 'mean')
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    num_edges = ADJACENCIES['COO'](RANDOM).values().numel()
    values = torch.randn(num_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    edge_index = with_values(adjacency, values)
    for got, expected in outputs_and_gradients(layer, edge_index, aggr, RANDOM.x(FEATURES), runs_fused):
        torch.testing.assert_close(got, expected)


@LAYERS
@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
def test_values_of_sparse_adjacencies_of_layers_that_do_not_multiply(adjacency, layer, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    values = torch.rand(ADJACENCIES['COO'](RANDOM).values().numel(), dtype=torch.float64)
    found = []
    for conv in layer.pair(torch.float64):
        conv.fuse = False
        found.append(conv(RANDOM.x(FEATURES).double(), with_values(adjacency, values)))
    torch.testing.assert_close(found[1], found[0])
    assert conv.note.reason is None


@pytest.mark.parametrize('fuse', [True, False])
@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
def test_weights_that_are_given_beside_values(adjacency, fuse, request):
    """A product of matrices multiplies by the values, a message by the weights."""
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    generator = torch.Generator().manual_seed(0)
    shape = 2, ADJACENCIES['COO'](RANDOM).values().numel()
    values, weights = torch.rand(shape, dtype=torch.float64, generator=generator)
    found = []
    for conv in GRAPH.pair(torch.float64):
        conv.fuse = fuse
        leaf = weights.clone().requires_grad_()
        out = conv(RANDOM.x(FEATURES).double(), with_values(adjacency, values), leaf)
        found.append((out, *torch.autograd.grad(out.square().sum(), [leaf], allow_unused=True)))
    torch.testing.assert_close(found[1], found[0])
    assert conv.note.reason is None


def test_a_mean_of_equal_numbers_is_rounded_as_in_pyg():
    """Behind it a normalisation of equal rows would make any difference large."""
    degrees = torch.arange(1, 60)
    targets = torch.arange(len(degrees)).repeat_interleave(degrees)
    edge_index = torch.stack((torch.zeros_like(targets), targets))
    fused = SAGE.pair(aggr='mean')[1]
    x = torch.full((len(degrees), FEATURES), 0.34657359)
    expected = torch_geometric.nn.SimpleConv('mean')(x, edge_index)
    fused.lin_l, fused.root_weight = torch.nn.Identity(), False
    assert torch.equal(fused(x, edge_index), expected)


@pytest.mark.parametrize('layer', [SAGE, GRAPH, GIN, GCN], ids=str)
@pytest.mark.parametrize('aggr', AGGREGATIONS)
def test_a_matrix_that_is_not_coalesced(aggr, layer):
    """PyG adds up the values of repeated edges before it takes a mean or an extreme."""
    pyg, fused = layer.pair(torch.float64, aggr=aggr, **({'normalize': False} if layer is GCN else {}))
    source, target = GRAPHS['repeated edges']().edge_index
    values = torch.randn(len(source), dtype=torch.float64)
    found = []
    for conv in (pyg, fused):
        matrix = torch.sparse_coo_tensor(torch.stack([target, source]), values, (12, 12))
        found.append(conv(GRAPHS['repeated edges']().x(FEATURES).double(), matrix))
    torch.testing.assert_close(found[1], found[0])
    assert (fused.note.reason is None) == (aggr == 'add')


@pytest.mark.parametrize('layer', [SAGE, GRAPH, GIN, GCN], ids=str)
@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('adjacency', ['edge_index', 'EdgeIndex', 'EdgeIndex by column', 'CSR', 'SparseTensor'])
def test_ties(adjacency, aggr, layer, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    x = RANDOM.x(FEATURES).relu().round().double()
    edge_index = ADJACENCIES[adjacency](RANDOM)
    edge_index = edge_index.double() if adjacency == 'CSR' else edge_index
    # in a product PyG gives the gradient of a tie to one edge, else it shares it
    runs_fused = adjacency in ('edge_index', 'EdgeIndex') or (adjacency == 'EdgeIndex by column' and layer is not GRAPH)
    for got, expected in outputs_and_gradients(layer, edge_index, aggr, x, runs_fused):
        torch.testing.assert_close(got, expected)


SORTED = [
    (FLOWS[0], 'EdgeIndex by column'),
    (FLOWS[1], 'EdgeIndex by row'),
    (FLOWS[0], 'CSR'),
    (FLOWS[0], 'SparseTensor'),
]


@pytest.mark.parametrize(('flow', 'adjacency'), SORTED)
@pytest.mark.parametrize('kind', ['GINConv', 'OwnGIN', 'CGConv'])
def test_ties_of_deterministic_layers(flow, adjacency, kind, request):
    """PyG then reduces segments of edges that are sorted, of which one edge gets the gradient of a tie."""
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    torch.use_deterministic_algorithms(True)
    try:
        if kind == 'CGConv':
            plain = torch_geometric.nn.CGConv(FEATURES, aggr='max', flow=flow)
        else:
            made = OwnGIN if kind == 'OwnGIN' else torch_geometric.nn.GINConv
            plain = made(torch.nn.Identity(), aggr='max', flow=flow)
    finally:
        torch.use_deterministic_algorithms(False)
    edge_index, gradients = ADJACENCIES[adjacency](RANDOM), []
    make = pygfuse.compile if kind == 'OwnGIN' else pygfuse.fuse
    for conv in (plain, make(copy.deepcopy(plain))):
        x = torch.zeros(RANDOM.num_sources, FEATURES, requires_grad=True)
        out = conv(x, edge_index)
        gradients.append(torch.autograd.grad((out * RANDOM.x(FEATURES)).sum(), x)[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert conv.note.reason is not None


class OwnGIN(torch_geometric.nn.GINConv):
    """A layer that no class of ours stands for."""


@LAYERS
@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
def test_extremes_over_sparse_adjacencies_without_gradients(adjacency, aggr, layer, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    pyg, fused = layer.pair(aggr=aggr)
    edge_index = ADJACENCIES[adjacency](RANDOM)
    with torch.no_grad():
        torch.testing.assert_close(fused(RANDOM.x(FEATURES), edge_index), pyg(RANDOM.x(FEATURES), edge_index))
    assert fused.note.reason is None


def test_gradients_of_the_values_of_a_sparse_tensor(needs_torch_sparse):
    start = torch.randn(ADJACENCIES['COO'](RANDOM).values().numel(), dtype=torch.float64)
    pyg, fused = GRAPH.pair(torch.float64)
    found = []
    for conv in (pyg, fused):
        values = start.clone().requires_grad_()
        conv(RANDOM.x(FEATURES).double(), with_values('SparseTensor', values)).square().sum().backward()
        found.append(values.grad)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize('aggr', AGGREGATIONS)
@pytest.mark.parametrize('graph', ['random', 'repeated edges', 'isolated nodes'])
def test_edge_weights_under_every_aggregation(graph, aggr):
    example = GRAPHS[graph]()
    weight = example.edge_attr()  # of both signs
    GRAPH_WEIGHTS.check(example, edge_weight=weight, options={'aggr': aggr}, narrow=False)
    GRAPH_WEIGHTS.check(example, edge_weight=weight.view(-1, 1).round(), options={'aggr': aggr}, narrow=False)


def test_edge_weights_of_another_type_fall_back():
    pyg, fused = GRAPH.pair()
    for weight, reason in (
        (torch.arange(RANDOM.num_edges), 'torch.int64 has no fused kernels'),
        (torch.rand(RANDOM.num_edges, dtype=torch.float64), 'the tensors are of several types'),
    ):
        arguments, found = (RANDOM.x(FEATURES), RANDOM.edge_index, weight), []
        for conv in (pyg, fused):
            try:
                found.append(conv(*arguments))
            except RuntimeError as error:
                found.append(str(error))
        assert fused.note.reason == reason
        if isinstance(found[0], str):
            assert found[1] == found[0]
        else:
            torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize('shape', [(), (8, 2), (7,)])
def test_edge_weights_of_a_wrong_shape(shape):
    _, fused = GRAPH.pair()
    arguments = torch.randn(4, FEATURES), random_edges(4, 4, 8), torch.ones(shape)
    if shape == (8, 2):  # PyG's error: a weight of more than one number an edge
        with pytest.raises(RuntimeError):
            fused(*arguments)
        return
    with pytest.raises(ValueError, match="'edge_weight'"):
        fused(*arguments)


@LAYERS
def test_nan_and_infinity_spread_as_in_pyg(layer):
    for aggr in AGGREGATIONS:
        for bad in (float('nan'), float('inf'), -float('inf')):
            pyg, fused = layer.pair(torch.float64, aggr=aggr)
            x = RANDOM.x(FEATURES).double()
            x[7, 2] = bad
            expected, got = pyg(x, RANDOM.edge_index), fused(x, RANDOM.edge_index)
            torch.testing.assert_close(got, expected, equal_nan=True)


def test_an_aggregation_that_is_a_module_falls_back():
    for aggr in ('lstm', 'softmax', ['mean', 'max']):
        pyg, fused = SAGE.pair(aggr=aggr)
        edge_index = RANDOM.edge_index[:, RANDOM.edge_index[1].argsort()]
        arguments = RANDOM.x(FEATURES), edge_index
        assert torch.equal(fused(*arguments), pyg(*arguments))
        assert 'aggr' in fused.note.reason
