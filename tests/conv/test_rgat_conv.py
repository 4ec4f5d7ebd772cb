from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import SparseTensor

import pygfuse
from pygfuse.conv import RGATConv
from pygfuse.memory import saved_bytes
from tests.conv.test_rgcn_conv import GRAPH_NAMES, types_of
from tests.support.parity import GRAPHS, Example, Parity, random_edges

RELATIONS, FEATURES, OUT, EDGE_DIM = 5, 8, 4, 3
PARITY = Parity(pyg.RGATConv, RGATConv)
MODES = ['additive-self-attention', 'multiplicative-self-attention']
MECHANISMS = ['across-relation', 'within-relation']
KINDS = [
    {'attention_mode': mode, 'attention_mechanism': mechanism}
    for mode, mechanism in itertools.product(MODES, MECHANISMS)
]
MODS = 'additive', 'scaled', 'f-scaled', 'f-additive'
MULTIPLICATIVE = {'attention_mode': MODES[1]}
OPTIONS = [
    {},
    {'heads': 2},
    {'heads': 2, 'concat': False},
    {'num_bases': 2},
    {'num_blocks': 2, 'heads': 2},
    {'bias': False, 'negative_slope': 0.1},
    {**MULTIPLICATIVE, 'dim': 3, 'heads': 2},
    {**MULTIPLICATIVE, 'dim': 2, 'heads': 2, 'concat': False},
    *({'mod': mod, 'heads': 2} for mod in MODS),
    *({**MULTIPLICATIVE, 'mod': mod, 'heads': 2, 'dim': 2} for mod in MODS),
]


def check(example: Example, options=None, **arguments) -> None:
    given = {'x': example.x(FEATURES), 'edge_index': example.edge_index, 'edge_type': types_of(example), **arguments}
    PARITY.check({'in_channels': FEATURES, 'out_channels': OUT, 'num_relations': RELATIONS, **(options or {})}, **given)


@pytest.mark.parametrize('graph', GRAPH_NAMES)
@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: ', '.join(kind.values()))
def test_graphs(graph, kind):
    check(GRAPHS[graph](), {**kind, 'heads': 2})


@pytest.mark.parametrize('mechanism', MECHANISMS)
@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_options(options, mechanism):
    check(GRAPHS['repeated edges'](), {'attention_mechanism': mechanism, **options})


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: ', '.join(kind.values()))
def test_features_of_edges(kind):
    example = GRAPHS['random']()
    options = {**kind, 'edge_dim': EDGE_DIM, 'heads': 2}
    check(example, options, edge_attr=example.edge_attr(EDGE_DIM))
    check(example, {**options, 'edge_dim': 1}, edge_attr=example.edge_attr())
    check(example, options)


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: ', '.join(kind.values()))
def test_attention_weights(kind):
    check(GRAPHS['random'](), {**kind, 'heads': 2}, return_attention_weights=True)


def test_flow_and_sizes():
    check(GRAPHS['random'](), {'flow': 'target_to_source'})
    check(GRAPHS['bipartite, more sources'](), size=(40, 23))


def test_sparse_tensor(needs_torch_sparse):
    example = GRAPHS['random']()
    source, target = example.edge_index
    order = (target * 60 + source).argsort()
    adjacency = SparseTensor(row=target, col=source, sparse_sizes=(60, 60))
    check(example, edge_index=adjacency, edge_type=types_of(example)[order])


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: ', '.join(kind.values()))
def test_what_is_saved_does_not_grow_with_edges_times_width(kind):
    torch.manual_seed(0)
    saved, x = [], torch.randn(20, FEATURES, requires_grad=True)
    conv = RGATConv(FEATURES, 16, RELATIONS, heads=2, **kind)
    for num_edges in (3000, 6000):
        arguments = x, random_edges(20, 20, num_edges), torch.arange(num_edges) % 3
        saved.append(saved_bytes(lambda a=arguments: conv(*a), exclude=[x, arguments[1]]))
        assert conv.note.reason is None
    # the query of an edge's target for each head, and where it comes from, which is kept with the graph
    assert saved[1] - saved[0] <= (4 * 2 + 8) * 3000


@pytest.mark.parametrize('mechanism', MECHANISMS)
def test_dropout_is_of_weights(mechanism):
    conv = RGATConv(FEATURES, 1, 2, dropout=0.5, attention_mechanism=mechanism, bias=False)
    x, edge_index = torch.ones(1000, FEATURES), random_edges(1000, 1, 1000)
    types = torch.zeros(1000, dtype=torch.int64)
    with torch.no_grad():
        conv.weight.fill_(1.0)
        arguments = (x, torch.ones(1, FEATURES)), edge_index, types
        torch.manual_seed(0)
        first, weights = conv(*arguments, return_attention_weights=True)
        torch.manual_seed(0)
        assert torch.equal(first, conv(*arguments))
        assert conv.note.reason is None
        # all messages are 8, all weights 1/1000, of which half are doubled
        assert first.item() != pytest.approx(8)
        assert first.item() == pytest.approx(8, rel=0.15)
        torch.testing.assert_close(weights[1], torch.full((1000, 1), 0.001))
        torch.testing.assert_close(conv.eval()(*arguments), torch.full((1, 1), 8.0))


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: ', '.join(kind.values()))
def test_gradients_and_their_gradients(kind):
    torch.manual_seed(0)
    conv = RGATConv(3, 2, 2, bias=False, **kind).double()
    x, edge_index = torch.randn(5, 3, dtype=torch.float64, requires_grad=True), random_edges(5, 5, 12)
    parameters = {name: p for name, p in conv.named_parameters() if name in ('weight', 'q', 'k')}

    def function(x, *values):
        given = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(conv, given, (x, edge_index, torch.arange(12) % 2))

    assert torch.autograd.gradcheck(function, (x, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (x, *parameters.values()))
    assert conv.note.reason is None


@pytest.mark.parametrize(
    ('options', 'arguments', 'reason'),
    [
        ({'aggr': 'mean'}, {}, "aggr='mean' has no fused form here"),
    ],
)
def test_what_is_not_fused_runs_pyg_and_says_so(options, arguments, reason):
    example = GRAPHS['random']()
    conv = RGATConv(FEATURES, OUT, RELATIONS, **options)
    conv(example.x(FEATURES), example.edge_index, types_of(example), **arguments)
    assert conv.note.reason == reason


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: ', '.join(kind.values()))
def test_weights_that_are_no_number_but_0_get_nothing_added(kind):
    example = GRAPHS['random']()
    torch.manual_seed(0)
    plain = pyg.RGATConv(FEATURES, OUT, RELATIONS, mod='f-additive', heads=2, **kind).double()
    with torch.no_grad():
        plain.k.mul_(1e4)
    conv = pygfuse.fuse(copy.deepcopy(plain))
    given = example.x(FEATURES).double(), example.edge_index, types_of(example)
    _, (_, weights) = plain(*given, return_attention_weights=True)
    assert 0 < (weights == 0).sum() < weights.numel()
    torch.testing.assert_close(conv(*given), plain(*given))
    assert conv.note.reason is None


def test_bad_input():
    example = GRAPHS['random']()
    conv = RGATConv(FEATURES, OUT, 2)
    with pytest.raises(ValueError, match='relations 0 to 1'):
        conv(example.x(FEATURES), example.edge_index, types_of(example))
    with pytest.raises(ValueError, match="'edge_type' to be given"):
        conv(example.x(FEATURES), example.edge_index)


def test_every_parameter_is_initialised():
    assert torch.equal(RGATConv(FEATURES, OUT, RELATIONS).l2, torch.full((OUT, OUT), 1 / OUT))


def test_fuse_swaps_it():
    assert type(pygfuse.fuse(pyg.RGATConv(4, 4, 2))) is RGATConv
