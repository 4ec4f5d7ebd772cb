"""Messages that read ``edge_index``: rows of nodes by its rows, reductions by its targets."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch.nn import Linear, Parameter
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import scatter, softmax

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, random_edges

WIDTH, NODES, EDGES = 8, 20, 90
GRAPHS_OF_ONE_SET = ('random', 'isolated nodes', 'hub', 'repeated edges', 'path', 'self-loops')


class Rotated(Own):
    """Sources in the frame of their target, and of their own: matrices of nodes that are read by rows of the edges."""

    def __init__(self, **options):
        super().__init__(node_dim=0, **options)
        self.lin = Linear(2, WIDTH)

    def message(self, x_j, frame, edge_index):
        target = 1 if self.flow == 'source_to_target' else 0
        turned = torch.bmm(x_j.unsqueeze(-2), frame[edge_index[target]]).squeeze(-2)
        own = torch.matmul(frame[edge_index[1 - target]], x_j.unsqueeze(-1)).squeeze(-1)
        return self.lin(turned - own).tanh()


class ByTargets(Own):
    """A softmax and a reduction by what the edges say, and the messages themselves."""

    def __init__(self):
        super().__init__(node_dim=0)
        self.score = Parameter(torch.randn(WIDTH))

    def message(self, x_j, edge_index, size_i):
        source, target = edge_index
        # not asserted, as pytest writes assertions anew
        if not len(edge_index) == edge_index.size(0) == edge_index.dim() == 2:
            raise ValueError(edge_index)
        if not edge_index.shape[1] == edge_index.size(1) == source.shape[0] == target.numel():
            raise ValueError(edge_index)
        return softmax((x_j * self.score).sum(-1), target, num_nodes=size_i).unsqueeze(-1) * x_j

    def aggregate(self, inputs, edge_index, dim_size):
        return scatter(inputs, edge_index[1, :], 0, dim_size, 'sum'), inputs


class BySources(Own):
    """A softmax over the edges that leave a node, as pre-trained networks of molecules have it."""

    def __init__(self, **options):
        super().__init__(node_dim=0, **options)
        self.score = Parameter(torch.randn(2, WIDTH))

    def message(self, x_i, x_j, edge_index):
        source = edge_index[0 if self.flow == 'source_to_target' else 1]
        score = (torch.cat([x_i.view(-1, 2, WIDTH // 2), x_j.view(-1, 2, WIDTH // 2)], dim=-1) * self.score).sum(-1)
        weight = softmax(score.tanh(), source)
        return (weight.unsqueeze(-1) * x_j.view(-1, 2, WIDTH // 2)).flatten(1)


class ByScoresOfSources(Own):
    def message(self, x_j, edge_index, size_j):
        return x_j * softmax(x_j.sum(dim=-1, keepdim=True), edge_index[0], num_nodes=size_j)


def frames(num_nodes: int) -> torch.Tensor:
    return torch.randn(num_nodes, 2, 2)


def given(graph: str, width: int = WIDTH, **more) -> dict[str, torch.Tensor]:
    example = GRAPHS[graph]()
    return {'edge_index': example.edge_index, 'x': torch.randn(example.num_targets, width), **more}


# with isolated nodes there are as many as edges
@pytest.mark.parametrize('graph', [graph for graph in GRAPHS_OF_ONE_SET if graph != 'isolated nodes'])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_rows_of_nodes_by_rows_of_the_edges(graph, flow):
    torch.manual_seed(0)
    arguments = given(graph, 2)
    assert_as_pyg(Rotated(flow=flow), {**arguments, 'frame': frames(len(arguments['x']))})


@pytest.mark.parametrize('graph', GRAPHS_OF_ONE_SET)
def test_reductions_by_rows_of_the_edges(graph):
    torch.manual_seed(0)
    assert_as_pyg(ByTargets(), given(graph))


@pytest.mark.parametrize('graph', [graph for graph in GRAPHS if graph not in ('no edges', 'one node')])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_a_softmax_over_the_edges_of_sources(graph, flow):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    edge_index = example.edge_index if flow == 'source_to_target' else example.edge_index.flip(0)
    sizes = example.num_sources, example.num_targets
    x = tuple(torch.randn(size, WIDTH) for size in (sizes if flow == 'source_to_target' else sizes[::-1]))
    assert_as_pyg(BySources(flow=flow), {'edge_index': edge_index, 'x': x})


@pytest.mark.parametrize('graph', ['random', 'bipartite, more sources'])
def test_a_softmax_of_scores_of_sources(graph):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    x = tuple(torch.randn(size, WIDTH) for size in (example.num_sources, example.num_targets))
    assert_as_pyg(ByScoresOfSources(), {'edge_index': example.edge_index, 'x': x})


def test_a_softmax_of_whole_messages_over_the_edges_of_sources_is_refused():
    class Whole(Own):
        def message(self, x_j, edge_index):
            return softmax(x_j.repeat(1, 3), edge_index[0])

    conv, arguments = Whole(), given('random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert 'a softmax of many numbers of an edge' in fused.note.reason


def test_torch_compile_of_a_softmax_of_sources():
    conv, arguments = ByScoresOfSources(), given('random')
    fused = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='eager', fullgraph=True)
    torch.testing.assert_close(fused(**arguments), conv(**arguments))


def test_an_edge_index_of_its_own_class():
    torch.manual_seed(0)
    arguments = given('random')
    arguments['edge_index'] = EdgeIndex(arguments['edge_index'], sparse_size=(60, 60)).sort_by('col').values
    assert_as_pyg(ByTargets(), arguments)


@pytest.mark.parametrize('is_first', [False, True])
def test_as_many_rows_as_edges(is_first):
    """Rows that may be of nodes and of edges are never taken for the wrong ones."""
    conv = Rotated()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for num_edges in (NODES, EDGES) if is_first else (EDGES, NODES, EDGES):
        arguments = random_edges(NODES, NODES, num_edges), torch.randn(NODES, 2), frames(NODES)
        named = dict(zip(('edge_index', 'x', 'frame'), arguments, strict=True))
        torch.testing.assert_close(fused(**named), conv(**named))
        assert (fused.note.reason is None) == (num_edges != NODES)


def test_calls_with_other_numbers_of_rows():
    conv = Rotated()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for num_nodes, rows in ((NODES, NODES), (30, 30), (NODES, NODES + 5), (NODES, NODES), (25, 25)):
        arguments = {'edge_index': random_edges(num_nodes, num_nodes, EDGES), 'x': torch.randn(num_nodes, 2)}
        arguments['frame'] = frames(rows)
        torch.testing.assert_close(fused(**arguments), conv(**arguments))
        assert (fused.note.reason is None) == (rows == num_nodes)


@pytest.mark.parametrize(
    ('read', 'reason'),
    [
        (lambda edge_index: edge_index[:, 0].sum(), 'it reads the edges themselves (__getitem__)'),
        (lambda edge_index: edge_index.flip(0)[0].sum(), 'it reads the edges themselves (flip)'),
        (lambda edge_index: torch.stack([*edge_index]).sum(), 'it reads the edges themselves (stack)'),
        (lambda edge_index: edge_index.unbind(1)[0].sum(), 'it reads the edges themselves (unbind)'),
        (lambda edge_index: (edge_index[0] + 1).sum(), None),
        (lambda edge_index: edge_index[0].max(), 'it reads the edges themselves (max)'),
        (lambda edge_index: edge_index.max(), 'it reads the edges themselves (max)'),
        (lambda edge_index: torch.unique(edge_index[1]).numel(), 'it reads the edges themselves (unique)'),
        (lambda edge_index: torch.numel(edge_index), 'it reads the edges themselves (numel)'),
    ],
)
def test_what_is_refused(read, reason):
    class Reading(Own):
        def message(self, x_j, edge_index):
            return x_j * read(edge_index)

    conv, arguments = Reading(), given('random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is not None
    assert reason is None or fused.note.reason == reason


def test_a_matrix_has_no_edge_index(needs_torch_sparse):
    class Either(Own):
        def message(self, x_j, edge_index):
            return x_j if edge_index is None else 2.0 * x_j

    conv, arguments = Either(), given('random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    source, target = arguments['edge_index']
    matrix = SparseTensor(row=target, col=source, sparse_sizes=(60, 60))
    for edge_index in (arguments['edge_index'], matrix, arguments['edge_index']):
        one = {**arguments, 'edge_index': edge_index}
        torch.testing.assert_close(fused(**one), conv(**one))


def test_the_last_target_as_a_size():
    class Pooled(Own):
        def message(self, x_j, index):
            return softmax(x_j, index, num_nodes=index.max() + 1) * x_j

        def aggregate(self, inputs, index):
            return scatter(inputs, index, 0, 1 + index.max(), 'mean')

    arguments = {'edge_index': random_edges(NODES, NODES, EDGES), 'x': torch.randn(NODES, WIDTH)}
    arguments['edge_index'][1, 3] = NODES - 1
    assert_as_pyg(Pooled(), arguments)
    arguments['edge_index'] = arguments['edge_index'] % (NODES - 3)
    assert pygfuse.compile(Pooled())(**arguments).shape == (NODES - 3, WIDTH)


SIZES = [lambda i: i.max() + 1, lambda i: i.max().item() + 1, lambda i: 1 + torch.max(i)]
# Python 3.10 does not say that it is called
SIZES += [lambda i: int(i.max()) + 1] if sys.version_info >= (3, 11) else []


@pytest.mark.parametrize('size', SIZES)
def test_the_last_target_as_a_size_of_what_is_gathered(size):
    class Pooled(Own):
        def message(self, x_j, index):
            return softmax(x_j, index, num_nodes=size(index)) * x_j

    arguments = {'edge_index': random_edges(NODES, NODES, EDGES) % (NODES - 3), 'x': torch.randn(NODES, WIDTH)}
    assert_as_pyg(Pooled(), arguments)


@pytest.mark.parametrize('size', [lambda i: int(i.max()) + 2, lambda i: i.max() + 2, lambda i: int(i.max() + 1.0)])
def test_other_sizes_of_the_last_target_are_refused(size):
    class Pooled(Own):
        def message(self, x_j, index):
            return softmax(x_j, index, num_nodes=size(index)) * x_j

    conv, arguments = Pooled(), given('random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**arguments), conv(**arguments))
    assert fused.note.reason is not None


def test_torch_compile():
    conv, arguments = ByTargets(), given('random')
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(torch.compile(fused, backend='eager')(**arguments), conv(**arguments))
