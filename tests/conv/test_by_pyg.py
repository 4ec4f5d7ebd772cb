"""Along so few edges that PyG's operators take less, layers run these: the same bits, whatever was called before."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from tests.support.parity import random_edges

pytestmark = pytest.mark.usefixtures('by_pyg')
FEW, MANY = 40, 20_000


def _linear(*widths: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(widths[0], widths[1]), torch.nn.ReLU(), torch.nn.Linear(*widths[1:]))


def _given(num_edges: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {'x': torch.randn(20, 8), 'edge_index': random_edges(20, 20, num_edges, seed=num_edges)}


def _with(name: str, make):
    return lambda num_edges: {**_given(num_edges), name: make(num_edges)}


LAYERS = {
    'a network': (lambda: pyg.PointNetConv(_linear(11, 8, 4), None), _with('pos', lambda _: torch.randn(20, 3))),
    'values that are kept': (lambda: pyg.PPFConv(_linear(12, 8, 4), None), None),
    'many operators on nodes': (lambda: pyg.PNAConv(8, 8, ['mean', 'std'], ['identity'], torch.ones(8).long()), _given),
    'one operator': (lambda: pyg.LEConv(8, 4), _given),
    'a matrix for each edge': (
        lambda: pyg.NNConv(8, 4, torch.nn.Linear(3, 32)), _with('edge_attr', lambda edges: torch.randn(edges, 3)),
    ),
    'a normalisation over edges': (lambda: pyg.EdgeConv(pyg.MLP([16, 4, 4])), _given),
    'types of edges': (
        lambda: pyg.FiLMConv(8, 4, num_relations=2), _with('edge_type', lambda edges: torch.arange(edges) % 2),
    ),
}  # fmt: skip


def test_a_size_that_says_what_features_say_changes_nothing():
    conv = pygfuse.fuse(pyg.SAGEConv((8, 8), 4))
    given = _given(FEW)
    pair = given['x'], given['x'][:15]
    edge_index = torch.stack([given['edge_index'][0], given['edge_index'][1] % 15])
    outs = [conv(pair, edge_index, size) for size in (None, (20, 15), [20, 15], None)]
    assert all(torch.equal(out, outs[0]) for out in outs)
    kind = conv.note.known.kind
    conv(pair, edge_index, (20, 15))
    assert conv.note.known.kind is kind
    with pytest.raises(ValueError, match='size'):
        conv(pair, edge_index, (20, 16))


def _points(num_edges: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    normal = torch.nn.functional.normalize(torch.randn(20, 3), dim=1)
    return {**_given(num_edges), 'pos': torch.randn(20, 3), 'normal': normal}


def made(name: str):
    torch.manual_seed(0)
    make, given = LAYERS[name]
    plain = make()
    return plain, pygfuse.fuse(copy.deepcopy(plain)), given or _points


@pytest.mark.parametrize('name', LAYERS)
def test_few_edges_run_by_pyg_and_many_fused(name):
    plain, conv, given = made(name)
    for num_edges in (FEW, MANY, FEW, FEW + 1, MANY):
        found, expected = conv(**given(num_edges)), plain(**given(num_edges))
        if num_edges == MANY:
            assert conv.note.reason is None
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        else:
            assert conv.note.reason == SO_FEW_EDGES
            assert torch.equal(found, expected)


@pytest.mark.parametrize('name', LAYERS)
def test_gradients_are_those_of_pyg(name):
    plain, conv, given = made(name)
    for layer in (plain, conv):
        for _ in range(2):
            layer.zero_grad()
            layer(**given(FEW)).square().sum().backward()
    for expected, found in zip(plain.parameters(), conv.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)


def test_sums_of_sources_are_fused_however_few():
    conv = pygfuse.fuse(pyg.SimpleConv())
    for _ in range(2):
        conv(**_given(FEW))
        assert conv.note.reason is None


@pytest.mark.parametrize('make', [pyg.LGConv, lambda: pyg.SGConv(8, 8, K=2), lambda: pyg.APPNP(2, 0.1)])
def test_weighed_sums_along_up_to_512(make):
    conv, plain = pygfuse.fuse(make()), make()
    plain.load_state_dict(conv.state_dict())
    for num_edges, is_fused in ((FEW, False), (400, False), (600, True), (FEW, False)):
        given = _given(num_edges)
        torch.testing.assert_close(conv(**given), plain(**given), rtol=1e-4, atol=1e-5, equal_nan=True)
        assert (conv.note.reason is None) == is_fused


def test_a_hook_is_called_where_an_earlier_call_ran_by_pyg():
    _, conv, given = made('one operator')
    conv(**given(FEW))
    called = []
    conv.register_message_forward_hook(lambda *arguments: called.append(arguments))
    conv(**given(FEW))
    assert called


def test_captured_once_whichever_way_calls_run():
    _, conv, given = made('a network')
    for num_edges in (FEW, MANY, FEW, MANY):
        conv(**given(num_edges))
    assert len(conv.plans()) == 1


class Twice(pyg.MessagePassing):
    """Messages that are many operators, and a sum of sources, along edges of their own."""

    def __init__(self):
        super().__init__()
        self.nn = _linear(16, 8, 8)

    def forward(self, x, edge_index, more):
        return self.propagate(edge_index, x=x, how='network') + self.propagate(more, x=x, how='sum')

    def message(self, x_i, x_j, how):
        return self.nn(torch.cat([x_i, x_j], dim=-1)) if how == 'network' else x_j


def test_what_a_call_runs_does_not_depend_on_those_before():
    torch.manual_seed(0)
    conv = pygfuse.compile(Twice())
    x, few, many = _given(FEW)['x'].requires_grad_(), _given(FEW)['edge_index'], _given(MANY)['edge_index']
    outs = [conv(x, few, more) for more in (few, many, few, many)]
    assert torch.equal(outs[0], outs[2])
    assert torch.equal(outs[1], outs[3])
    # of a sum, which takes less than PyG's, however few
    assert conv.note.reason is None
    again = pygfuse.compile(Twice())
    checkpoint(again, x, few, many, use_reentrant=False).sum().backward()


@pytest.mark.parametrize('name', ['a network', 'types of edges'])
def test_the_report_says_so(name):
    _, conv, given = made(name)
    conv(**given(FEW))
    assert SO_FEW_EDGES in str(pygfuse.report(conv))


@pytest.mark.parametrize('values', [False, True], ids=['no values', 'values'])
@pytest.mark.parametrize(
    'make', [lambda: pyg.SimpleConv(), lambda: pyg.GraphConv(8, 4), lambda: pyg.SAGEConv(8, 4, aggr='max')]
)
def test_a_small_matrix_is_multiplied_by_pyg(make, values, needs_torch_sparse):
    from torch_sparse import SparseTensor

    plain = make()
    conv = pygfuse.fuse(copy.deepcopy(plain))
    (source, target), x = _given(FEW)['edge_index'], _given(FEW)['x']
    numbers = torch.rand(FEW) if values else None
    matrix = SparseTensor(row=target, col=source, value=numbers, sparse_sizes=(20, 20))
    is_listed = not values and plain.aggr in ('sum', 'add')
    try:
        expected = plain(x, matrix)
    except NotImplementedError:
        pytest.skip('PyG wrote its method for the first layer of the class in this process, of another reduction')
    for _ in range(2):
        found = conv(x, matrix)
        assert conv.note.reason == (None if is_listed else SO_FEW_EDGES)
        torch.testing.assert_close(found, expected)


def test_heterogeneous_attention_runs_by_pyg():
    metadata = (['a'], [('a', 'to', 'a')])
    torch.manual_seed(0)
    plain = pyg.HANConv(8, 8, metadata, heads=2)
    conv = pygfuse.fuse(copy.deepcopy(plain))
    for num_edges in (FEW, 20_000, FEW, FEW):
        given = _given(num_edges)
        both = [layer({'a': given['x']}, {('a', 'to', 'a'): given['edge_index']})['a'] for layer in (conv, plain)]
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-4)
        assert (conv.note.reason == SO_FEW_EDGES) == (num_edges == FEW)
        assert num_edges != FEW or torch.equal(*both)
