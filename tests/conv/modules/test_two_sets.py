"""Modules whose edges lead from nodes of one set to those of another."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree, scatter, softmax

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler import modules_of_two_sets as two
from tests.compiler.own_modules import OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_same

SOURCES, TARGETS, EDGES = 37, 23, 250


def given(edge_index=None, sources=SOURCES, targets=TARGETS, edges=EDGES):
    generator = torch.Generator().manual_seed(0)
    if edge_index is None:
        rows = [torch.randint(nodes, (edges,), generator=generator) for nodes in (sources, targets)]
        edge_index = torch.stack(rows)
    shapes = {'x': (sources, WIDTH), 'y': (targets, WIDTH), 'edge_attr': (edge_index.shape[1], OF_EDGES)}
    return {**{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}, 'edges': edge_index}


ARGUMENTS = {
    two.Classifier: lambda d: {'x_user': d['x'], 'x_movie': d['y'], 'edge_label_index': d['edges']},
    two.Decoder: lambda d: {'z_dict': {'user': d['x'], 'movie': d['y']}, 'edge_label_index': d['edges']},
    two.Encoder: lambda d: {
        **{'grid': d['x'], 'mesh': d['y'], 'edge_attr': d['edge_attr'], 'edge_index': d['edges']},
    },
    two.CrossAttention: lambda d: {'x_src': d['x'], 'x_dst': d['y'], 'edge_index': d['edges']},
    two.Hyperedges: lambda d: {'x': d['x'], 'e': d['y'], 'node_idx': d['edges'][0], 'edge_idx': d['edges'][1]},
    two.ToSenders: lambda d: {'x': d['x'], 'y': d['y'], 'edge_index': d['edges'], 'num_senders': d['x'].shape[0]},
    two.Counted: lambda d: {'x': d['x'], 'y': d['y'], 'edge_index': d['edges']},
    two.Listeners: lambda d: {'x_dst': d['y'], 'x_src': d['x'], 'edge_index': d['edges']},
    two.SharesOfShares: lambda d: {'x': d['x'], 'y': d['y'], 'a': d['x'][:, :1].clone(), 'edge_index': d['edges']},
    two.LikedBy: lambda d: {'x_movie': d['y'], 'x_user': d['x'], 'edge_label_index': d['edges']},
    two.SentInShares: lambda d: {'x': d['x'], 'y': d['y'], 'a': d['x'][:, :1].clone(), 'edge_index': d['edges']},
    two.WeighedBothWays: lambda d: {
        **{'x': d['x'], 'y': d['y'], 'edge_index': d['edges'], 'edge_attr': d['edge_attr']},
    },
}
GRAPHS = {
    'any': lambda: None,
    'isolated nodes': lambda: torch.tensor([[3, 3, 4, 9], [4, 9, 4, 3]]),
    'hubs': lambda: torch.stack([torch.arange(150).clamp(max=SOURCES - 1), torch.arange(150) % 3]),
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'int32': lambda: given()['edges'].int(),
    'not contiguous': lambda: given()['edges'].t().contiguous().t(),
}


SLOW = 'hubs', 'repeated edges', 'not contiguous'


@pytest.mark.parametrize(
    'graph', [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in GRAPHS]
)
@pytest.mark.parametrize('kind', ARGUMENTS, ids=lambda kind: kind.__name__)
def test_outputs_and_gradients_are_those_of_its_own_code(kind, graph):
    torch.manual_seed(0)
    assert_same(kind(), ARGUMENTS[kind](given(GRAPHS[graph]())))


def test_each_call_may_bring_other_numbers_of_nodes():
    torch.manual_seed(0)
    module = two.Encoder()
    compiled = pygfuse.compile(copy.deepcopy(module))
    # once as many of both
    for sources, targets in [(31 + 3 * k, 20 + 2 * k) for k in range(20)] + [(30, 30), (20, 40), (40, 20)]:
        arguments = ARGUMENTS[two.Encoder](given(sources=sources, targets=targets))
        for found, expected in zip(compiled(**arguments), module(**arguments), strict=True):
            torch.testing.assert_close(found, expected)
        assert compiled.note.reason is None


def test_the_larger_set_may_be_either():
    module = two.Listeners()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for sizes in ({'sources': 30, 'targets': 90}, {'sources': 90, 'targets': 30}):
        arguments = ARGUMENTS[two.Listeners](given(**sizes))
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
        assert compiled.note.reason is None


@pytest.mark.parametrize('node', [-1, SOURCES - 1, SOURCES])
@pytest.mark.parametrize('row', [0, 1])
def test_what_names_no_node_is_for_its_own_code(node, row):
    edges = given()['edges'].clone()
    edges[row, 7] = node
    arguments, compiled = ARGUMENTS[two.Classifier](given(edges)), pygfuse.compile(two.Classifier())
    if node == SOURCES or (row == 1 and node >= TARGETS):
        with pytest.raises(IndexError):
            compiled(**arguments)
    else:
        torch.testing.assert_close(compiled(**arguments), two.Classifier()(**arguments))
    is_named = row == 0 and node == SOURCES - 1
    assert compiled.note.reason == (None if is_named else 'edges that name other nodes than there are')


class Sums(torch.nn.Module):
    """Sums of what scores are, which have no form."""

    def forward(self, x, y, edge_index):
        return torch.cumsum(x[edge_index[0]] * y[edge_index[1]], dim=0)


class FromThree(torch.nn.Module):
    """Reads rows of a table by what the ends of edges tell."""

    def forward(self, x, y, z, edge_index):
        row, col = edge_index
        return torch.zeros_like(y).index_add_(0, col, x[row] * z[row % 5])


def test_the_reason_is_that_of_the_nodes_that_it_reads():
    data = given()
    compiled = pygfuse.compile(Sums())
    for _ in range(2):
        compiled(data['x'], data['y'], data['edges'])
        assert compiled.note.reason == 'an operator over the dimension of edges'


def test_rows_of_a_table_by_the_ends_of_edges():
    data = given()
    table = torch.randn(5, WIDTH)
    assert_same(FromThree(), {'x': data['x'], 'y': data['y'], 'z': table, 'edge_index': data['edges']})


class AtWrongEnds(torch.nn.Module):
    def forward(self, x, y, edge_index):
        return torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]] + y[edge_index[1]])


class OfOtherNodes(torch.nn.Module):
    def forward(self, x, y, edge_index):
        row, col = edge_index
        return torch.zeros_like(y).index_add_(0, col, x[row]), degree(col, x.size(0)).sqrt()


@pytest.mark.parametrize('kind', [AtWrongEnds, OfOtherNodes])
def test_sums_at_the_wrong_ends_and_degrees_of_other_nodes_are_for_its_own_code(kind):
    data = given(targets=SOURCES - 1)
    compiled = pygfuse.compile(kind())
    for _ in range(2):
        found, expected = (module(data['x'], data['y'], data['edges']) for module in (compiled, kind()))
        torch.testing.assert_close(found, expected)
        assert compiled.note.reason is not None


def test_scores_of_links_keep_nothing_for_edges():
    def kept(edges):
        arguments = ARGUMENTS[two.Classifier](given(edges=edges))
        x = [arguments[name].requires_grad_() for name in ('x_user', 'x_movie')]
        compiled(**arguments)
        return saved_bytes(lambda: compiled(**arguments).sum(), exclude=[*x, arguments['edge_label_index']])

    compiled = pygfuse.compile(two.Classifier())
    assert kept(edges=4000) <= kept(edges=1000) + 3000 * 24


def test_a_model_fuses_them_where_it_is_told_to():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.classifier = two.Classifier()

        def forward(self, x, y, edges):
            return self.classifier(x, y, edges)

    model, data = pygfuse.fuse(Model(), include=two.Classifier), given()
    expected = two.Classifier()(data['x'], data['y'], data['edges'])
    torch.testing.assert_close(model(data['x'], data['y'], data['edges']), expected)
    assert model.classifier.note.reason is None


class OneSet(torch.nn.Module):
    """Shares of the edges into targets, which sources add up."""

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        share = softmax(edge_attr[:, :1], col, num_nodes=x.size(0))
        sent = scatter(x[col] * share, row, dim=0, dim_size=x.size(0), reduce='sum')
        return sent + scatter(x[row], col, dim=0, dim_size=x.size(0), reduce='sum')


def test_a_softmax_of_targets_that_sources_add_up():
    data = given(targets=SOURCES)
    assert_same(OneSet(), {'x': data['x'], 'edge_index': data['edges'], 'edge_attr': data['edge_attr']})


class OfTable(MessagePassing):
    """A softmax over the edges of sources of numbers that a table has for types of edges."""

    def __init__(self):
        super().__init__(aggr='sum')
        self.table = torch.nn.Parameter(torch.randn(5, 1))

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, edge_type=edge_type)

    def message(self, x_j, edge_type, edge_index_j, size_j):
        return x_j * softmax(self.table[edge_type], edge_index_j, num_nodes=size_j)


def test_a_softmax_of_sources_of_rows_of_a_table():
    data = given(targets=SOURCES)
    arguments = {'x': data['x'], 'edge_index': data['edges'], 'edge_type': torch.arange(EDGES) % 5}
    assert_same(OfTable(), arguments)


TRACED = [
    *(two.Classifier, two.Listeners),
    *(
        pytest.param(one, marks=pytest.mark.slow)
        for one in (two.CrossAttention, two.Hyperedges, two.ToSenders, two.Counted)
    ),
]


@pytest.mark.parametrize('kind', TRACED, ids=lambda kind: kind.__name__)
def test_torch_compile_traces_them(kind):
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    traced = torch.compile(compiled, backend='aot_eager', fullgraph=True, dynamic=True)
    for sizes in ({}, {'sources': 31, 'targets': 29, 'edges': 200}):
        arguments = ARGUMENTS[kind](given(**sizes))
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            found = traced(**arguments)
        torch.testing.assert_close(found, module(**arguments))
        assert compiled.note.reason is None
