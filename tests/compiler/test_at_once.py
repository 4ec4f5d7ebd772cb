"""Values of so few edges that all have a row at once."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from pygfuse.graph.graph import Graph
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import Begin, Map, edge_network
from pygfuse.ops.edge_mlp.reference import reference_network
from tests.compiler.cases import CASES
from tests.compiler.test_convs import check
from tests.compiler.test_own_convs import checked_with_a_row_of_zeros
from tests.support.operators import Names
from tests.support.parity import GRAPHS, assert_close, results

pytestmark = pytest.mark.usefixtures('at_once')
OF_EDGES = ('PointNetConv', 'PPFConv', 'NNConv', 'PointTransformerConv', 'PointGNNConv')
RUNNING = [case for case in CASES if case.name in OF_EDGES and case.reason is None]


@pytest.mark.parametrize('graph', ['random', 'self-loops', 'isolated nodes', 'hub', 'repeated edges'])
@pytest.mark.parametrize('case', [case for case in RUNNING if case.name != 'PPFConv'], ids=str)
def test_outputs_and_gradients_are_those_of_pyg(case, graph):
    check(case, graph)


@pytest.mark.parametrize('case', [case for case in RUNNING if case.name == 'PPFConv'], ids=str)
def test_operators_on_edges_give_what_pyg_gives(case):
    check(case, 'random')


@pytest.mark.parametrize('place', [0, 2, 4])
def test_edges_that_tie_share_a_gradient_and_run_fused(place):
    conv, _ = checked_with_a_row_of_zeros(place)
    assert conv.note.reason is None


def test_nothing_is_sorted(monkeypatch):
    conv = pygfuse.compile(pyg.PointNetConv(torch.nn.Linear(11, 4), add_self_loops=False))
    edge_index = GRAPHS['random']().edge_index
    x, pos = torch.randn(60, 8, requires_grad=True), torch.randn(60, 3)
    for _ in range(2):
        conv(x, pos, edge_index)
    made, original = [], Graph.__init__
    monkeypatch.setattr(Graph, '__init__', lambda self, *given: made.append(self) or original(self, *given))
    conv(x, pos, edge_index.clone()).sum().backward()
    assert made == []
    assert conv.note.reason is None


@pytest.mark.parametrize('row', [0, 1])
@pytest.mark.parametrize('reduce', ['sum', 'max'])
def test_an_edge_of_a_node_that_is_not_there_is_named(reduce, row):
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 1]])
    edge_index[row, 1] = 7
    x = torch.randn(3, 2)
    for stages in ([Begin(source=x)], [Begin(source=x, target=x)], [Begin(target=x)]):
        with pytest.raises(ValueError, match='7'):
            edge_network(stages, Edges(edge_index, 3, 3), reduce)


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
@pytest.mark.parametrize('reduce', ['sum', 'max'])
def test_results_are_those_of_the_reference(reduce, flow):
    torch.manual_seed(0)
    edge_index = torch.stack([torch.randint(7, (20,)), torch.randint(5, (20,))])
    sizes = (7, 5) if flow == 'source_to_target' else (5, 7)
    source, target = (torch.randn(rows, 3, dtype=torch.float64, requires_grad=True) for rows in sizes)
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    edges, stages = Edges(edge_index, *sizes, flow), [Begin(source, target), Map(weight, None)]
    found, expected = edge_network(stages, edges, reduce), reference_network(stages, edges, reduce)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        given = source, target, weight
        gradients = (torch.autograd.grad(out.square().sum(), given, retain_graph=True) for out in (one, other))
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ('num_edges', 'reduce', 'function'),
    [
        (15_000, 'max', 'few_edges._Network'),
        (30_000, 'max', 'eager._EdgeNetwork'),
        (100_000, 'sum', 'few_edges._Network'),
        (150_000, 'sum', 'eager._EdgeNetwork'),
    ],
)
def test_more_edges_are_taken_in_chunks(num_edges, reduce, function):
    edge_index, x = torch.randint(100, (2, num_edges)), torch.randn(100, 8, requires_grad=True)
    out, _ = edge_network([Begin(source=x), Map(torch.randn(4, 8), None)], Edges(edge_index, 100, 100), reduce)
    assert type(out.grad_fn).__name__ == f'{function.split(".")[1]}Backward'


def test_ties_that_somebody_watches_run_pyg_s_path():
    conv, given = checked_with_a_row_of_zeros(0)
    with Names():
        conv(**given)
    assert conv.note.reason == 'all edges tie where a row of weights is zero'


def _reducing(*reductions: str) -> pyg.PNAConv:
    torch.manual_seed(0)
    return pyg.PNAConv(8, 8, [*reductions], ['identity'], torch.tensor([1, 5, 3, 2]), edge_dim=6, towers=2)


@pytest.mark.parametrize('limit', [0, None])
def test_features_of_edges_that_several_walks_read_are_multiplied_once(limit, monkeypatch):
    if limit is not None:
        monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_MULTIPLIED_BYTES', limit)
    example = GRAPHS['random']()
    plain = _reducing('mean', 'max', 'std')
    conv = pygfuse.compile(copy.deepcopy(plain))
    given = {'x': example.x(8), 'edge_index': example.edge_index, 'edge_attr': example.edge_attr(6)}
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))
    given['edge_attr'].requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        conv(**given)
    rows = {t.data_ptr() for t in saved if t.shape == (example.num_edges, 16)}
    assert len(rows) == (0 if limit == 0 else 1)


def test_a_product_that_one_walk_reads_stays_in_the_walk():
    conv = pygfuse.compile(_reducing('mean'))
    example = GRAPHS['random']()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        conv(example.x(8), example.edge_index, example.edge_attr(6))
    assert conv.note.reason is None
    assert not [t for t in saved if t.shape == (example.num_edges, 16)]
