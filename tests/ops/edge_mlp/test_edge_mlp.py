"""Networks on chunks of edges, against the same with values of all edges at once."""

from __future__ import annotations

import pytest
import torch

from pygfuse.graph.graph import Graph
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import (
    Affine,
    Begin,
    Contract,
    Map,
    Normalise,
    Plus,
    Rectifier,
    Times,
    edge_moments,
    edge_network,
    edge_reduce,
    edge_states,
)
from pygfuse.ops.edge_mlp.drops import DropsOfEdges
from pygfuse.ops.edge_mlp.reference import reference_moments, reference_network
from pygfuse.ops.edge_mlp.stages import written
from pygfuse.program.activation import Activation
from tests.support.in_place import in_place_of
from tests.support.parity import GRAPHS

WIDTH, OUT = 6, 4


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


STAGES = {
    'nothing': lambda: [],
    'activation': lambda: [Activation('elu', (1.0, 1.0))],
    'map': lambda: [Map(leaf(OUT, WIDTH), leaf(OUT))],
    'affine': lambda: [Affine(leaf(WIDTH), leaf(WIDTH))],
    'rectifier': lambda: [Rectifier(leaf(WIDTH))],
    'all': lambda: [
        *(Activation('tanh'), Map(leaf(OUT, WIDTH), leaf(OUT)), Rectifier(leaf(OUT)), Affine(leaf(OUT), leaf(OUT))),
        *(Activation('relu'), Map(leaf(WIDTH, OUT), leaf(WIDTH))),
    ],
}
# bytes and edges of a chunk, and the widest map that joins its neighbours in one step; None: as on a GPU
CHUNKS = {
    **{'whole': (2**21, 256, 256), 'small': (1, 7, 256), 'small, stage by stage': (1, 7, 0)},
    'small, by operators of torch': (1, 7, None),
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) if 'torch' in name else name for name in CHUNKS])
def setting(request, monkeypatch):
    chunk_bytes, least, widest = CHUNKS[request.param]
    for module in ('mapping', 'cuda'):
        monkeypatch.setattr(f'pygfuse.{module}.edge_chunks.CHUNK_BYTES', chunk_bytes)
        monkeypatch.setattr(f'pygfuse.{module}.edge_chunks.LEAST_EDGES', least)
    if widest is None:
        in_place_of('edge_chunks', monkeypatch)
    else:
        monkeypatch.setattr('pygfuse.cpu.networks.row_networks.WIDEST', widest)
    monkeypatch.setattr('pygfuse.ops.edge_mlp.reduction.SETTLED_AFTER', 2)


def edges_of(example) -> Edges:
    return Edges(example.edge_index, example.num_sources, example.num_targets)


def leaves_of(stages) -> list[torch.Tensor]:
    """The tensors of all stages but for those that dropouts are drawn from."""
    return [tensor for tensor in written(stages)[1] if tensor.requires_grad]


def assert_equal(stages, got, expected) -> None:
    torch.testing.assert_close(got, tuple(expected))
    grads, tensors = [torch.randn_like(result) for result in got], leaves_of(stages)
    for found, right in zip(
        torch.autograd.grad(got, tensors, grads), torch.autograd.grad(expected, tensors, grads), strict=True
    ):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize('reduce', ['sum', 'max', 'moments'])
@pytest.mark.parametrize('name', STAGES)
@pytest.mark.parametrize('graph', ['bipartite, more targets', 'isolated nodes', 'path', 'one node with a loop'])
def test_against_the_reference(graph, name, reduce, setting):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    edges = edges_of(example)
    stages = [Begin(leaf(example.num_sources, WIDTH), leaf(example.num_targets, WIDTH)), *STAGES[name]()]
    if reduce == 'moments':
        assert_equal(stages, edge_moments(stages, edges), reference_moments(stages, edges))
    else:
        assert_equal(stages, (edge_reduce(stages, edges, reduce),), reference_network(stages, edges, reduce)[:1])


def with_features(sources: int, targets: int, num_edges: int) -> dict[str, list]:
    """Networks that read features of edges, wherever a stage can."""
    features, own = leaf(num_edges, 3), leaf(num_edges, OUT)
    drops = DropsOfEdges(num_edges, features)
    source, target = leaf(sources, WIDTH), leaf(targets, WIDTH)
    deep = [Activation('silu'), Map(leaf(OUT, WIDTH), leaf(OUT)), Normalise(leaf(OUT), leaf(OUT), 1e-5)]
    return {
        'both ends and features': [Begin(source, target), Plus(features, leaf(WIDTH, 3)), *deep],
        'residual': [Begin(source, target), Plus(own, leaf(WIDTH, OUT)), *deep, Plus(own)],
        'residual of nodes alone': [Begin(source, target), *deep, Plus(own)],
        'sources and features': [Begin(source, None), Plus(features, leaf(WIDTH, 3)), *deep],
        'targets and features': [Begin(None, target), Plus(features, leaf(WIDTH, 3)), *deep],
        'products after others': [
            *(Begin(features=features), Map(leaf(OUT, 3), None), Plus(own, leaf(OUT, OUT)), Activation('tanh')),
            *(Plus(features, leaf(OUT, 3)), Plus(own)),
        ],
        'features as they are': [Begin(source, target, leaf(num_edges, WIDTH)), *deep],
        'features alone': [Begin(features=features), Map(leaf(OUT, 3), None), Normalise(None, None, 1e-3)],
        'filters': [
            *(Begin(features=features), Map(leaf(OUT, 3), leaf(OUT)), Activation('softplus', (1.0, 20.0))),
            Times(leaf(sources, OUT), leaf(num_edges, 1)),
        ],
        'filters as wide as the edge': [Begin(features=own), Times(leaf(sources, OUT), leaf(num_edges, OUT))],
        'filters of sources': [Begin(features=own), Normalise(leaf(OUT), None, 1e-5), Times(leaf(sources, OUT))],
        'matrices of edges': [
            *(Begin(features=features), Map(leaf(OUT, 3), leaf(OUT)), Activation('tanh')),
            Contract(leaf(sources, 5), leaf(WIDTH, (OUT + 1) * 5)),
        ],
        'matrices without a constant': [
            Begin(features=own),
            Contract(source, leaf(2, OUT * WIDTH)),
            Activation('silu'),
        ],
        'the features again behind a run': [
            *(Begin(features=features), Map(leaf(OUT, 3), leaf(OUT)), Activation('tanh'), Map(leaf(3, OUT), None)),
            Plus(features),
        ],
        'dropped': [
            *(Begin(source, target), Activation('silu'), drops.stage(WIDTH, 0.3), Map(leaf(OUT, WIDTH), leaf(OUT))),
            *(drops.stage(OUT, 0.5), Plus(own), Activation('tanh'), drops.stage(OUT, 0.1)),
        ],
        'dropped features': [Begin(features=own), drops.stage(OUT, 0.5), Map(leaf(20, OUT), None)],
        'filters of edges': [Begin(features=own), Activation('tanh'), Times(None, own)],
    }


NAMES = list(with_features(1, 1, 1))
GRAPHS_OF_FEATURES = ['random', 'bipartite, more targets', 'isolated nodes', 'repeated edges', 'one node with a loop']


@pytest.mark.parametrize('reduce', ['sum', 'max'])
@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('graph', GRAPHS_OF_FEATURES)
def test_features_of_edges(graph, name, reduce, setting):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    stages = with_features(example.num_sources, example.num_targets, example.num_edges)[name]
    edges = edges_of(example)
    expected = reference_network(stages, edges, reduce)
    assert_equal(stages, edge_network(stages, edges, reduce), expected)
    assert_equal(stages, (edge_reduce(stages, edges, reduce),), reference_network(stages, edges, reduce)[:1])
    assert_equal(stages, (edge_states(stages, edges),), reference_network(stages, edges, 'none')[1:])


def test_edges_that_are_sorted_by_target_are_read_where_they_are(setting):
    torch.manual_seed(0)
    edge_index = torch.tensor([[2, 0, 1, 2, 0], [0, 0, 1, 3, 3]])
    for name, stages in with_features(3, 4, 5).items():
        edges = Edges(edge_index, 3, 4)
        assert edges.graph().csr.edge_id is None
        assert_equal(stages, edge_network(stages, edges, 'sum'), reference_network(stages, edges, 'sum'))
        assert name


@pytest.mark.parametrize('reduce', ['sum', 'max'])
@pytest.mark.parametrize('name', NAMES)
def test_features_without_a_gradient(name, reduce):
    torch.manual_seed(0)
    example = GRAPHS['random']()
    stages = with_features(60, 60, example.num_edges)[name]
    edges, tensors = edges_of(example), []
    for tensor in leaves_of(stages):
        if len(tensor) == example.num_edges:
            tensor.requires_grad_(False)
        else:
            tensors.append(tensor)
    if not tensors:
        return
    results = edge_reduce(stages, edges, reduce), reference_network(stages, edges, reduce)[0]
    grads = [torch.autograd.grad(result.square().sum(), tensors) for result in results]
    for found, right in zip(*grads, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize('read', ['out', 'state'])
def test_one_result_alone_is_differentiated(read):
    torch.manual_seed(0)
    example = GRAPHS['random']()
    stages, edges, k = (
        with_features(60, 60, example.num_edges)['residual'],
        edges_of(example),
        ['out', 'state'].index(read),
    )
    results = edge_network(stages, edges, 'sum'), reference_network(stages, edges, 'sum')
    assert_equal(stages, (results[0][k],), (results[1][k],))


@pytest.mark.parametrize('name', ['residual', 'filters', 'matrices of edges'])
def test_gradients_and_gradients_of_gradients(name):
    torch.manual_seed(0)
    edges = Edges(torch.tensor([[0, 2, 1, 1, 0], [1, 0, 1, 2, 2]]), 3, 3)
    stages = with_features(3, 3, 5)[name]
    tensors = tuple(written(stages)[1])

    def results(*_):
        return edge_network(stages, edges, 'sum')

    assert torch.autograd.gradcheck(results, tensors)
    assert torch.autograd.gradgradcheck(results, tensors)


def test_no_edges():
    edges = Edges(torch.empty(2, 0, dtype=torch.int64), 3, 2)
    out = edge_reduce([Begin(leaf(3, WIDTH), leaf(2, WIDTH)), *STAGES['all']()], edges, 'max')
    assert torch.equal(out, torch.zeros(2, WIDTH, dtype=torch.float64))
    out.sum().backward()


def test_operators_that_are_compiled_take_a_graphs_token():
    # as where a hook breaks what is traced: of such a token it is not known how many edges there are
    edge_index = torch.randint(9, (2, 80))
    token = Graph.of(edge_index.clone(), num_sources=9, num_targets=9).token
    assert token.shape == (2,)
    edges, edges_by_token = Edges(edge_index, 9, 9), Edges(token, 9, 9)
    stages = [Begin(leaf(9, WIDTH), leaf(9, WIDTH)), *STAGES['all']()]
    found = torch.compile(lambda: edge_reduce(stages, edges_by_token, 'max'), backend='aot_eager')()
    assert torch.equal(found, edge_reduce(stages, edges, 'max'))
    found = torch.compile(lambda: edge_network(stages, edges_by_token, 'sum'), backend='aot_eager')()
    assert all(map(torch.equal, found, edge_network(stages, edges, 'sum')))


def test_moments_far_from_zero():
    edges = Edges(torch.randint(50, (2, 5000)), 50, 50)
    source, target = torch.randn(50, WIDTH), 1000 + torch.randn(50, WIDTH)
    mean, covariance = edge_moments([Begin(source, target)], edges)
    right_mean, right = reference_moments([Begin(source.double(), target.double())], edges)
    torch.testing.assert_close(mean, right_mean, rtol=1e-7, atol=0)
    # what the sums of both ends are rounded to, against squares of 1e6
    torch.testing.assert_close(covariance, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('width', [1, 5, 16, 21, 300])
def test_widths(width):
    torch.manual_seed(0)
    edges = Edges(torch.randint(9, (2, 80)), 9, 9)
    stages = [Begin(leaf(9, width), leaf(9, width)), Map(leaf(3, width), leaf(3))]
    assert_equal(stages, (edge_reduce(stages, edges, 'max'),), reference_network(stages, edges, 'max')[:1])


@pytest.mark.parametrize('behind', [Plus, Map, Activation], ids=lambda kind: kind.__name__)
def test_features_of_edges_stay(behind):
    torch.manual_seed(0)
    # in the order of targets, where chunks read them in place
    edges = Edges(torch.tensor([[0, 2, 1, 0, 1], [0, 0, 1, 2, 2]]), 3, 3)
    features, other = leaf(5, 3), leaf(5, OUT)
    stages = {Plus: Plus(other, leaf(3, OUT)), Map: Map(leaf(3, 3), None), Activation: Activation('tanh')}
    before = features.detach().clone()
    edge_reduce([Begin(features=features), stages[behind], Activation('silu')], edges, 'sum').sum().backward()
    assert features.equal(before)
