from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import SparseTensor

import pygfuse
from pygfuse.conv import HEATConv
from pygfuse.memory import saved_bytes
from tests.conv.test_rgcn_conv import GRAPH_NAMES, types_of
from tests.support.parity import GRAPHS, Example, Parity, random_edges

FEATURES, EDGE_DIM, NODE_TYPES, EDGE_TYPES = 8, 3, 4, 5
PARITY = Parity(pyg.HEATConv, HEATConv)
OPTIONS = {
    'in_channels': FEATURES, 'out_channels': 4, 'num_node_types': NODE_TYPES, 'num_edge_types': EDGE_TYPES,
    'edge_type_emb_dim': 6, 'edge_dim': EDGE_DIM, 'edge_attr_emb_dim': 5, 'heads': 2,
}  # fmt: skip
# PyG's takes one set of nodes
SQUARE = [name for name in GRAPH_NAMES if 'bipartite' not in name]


def node_types(count: int) -> torch.Tensor:
    return torch.randint(NODE_TYPES, (count,), generator=torch.Generator().manual_seed(4))


def check(example: Example, options=None, **arguments) -> None:
    given = {
        'x': example.x(FEATURES), 'edge_index': example.edge_index, 'node_type': node_types(example.num_sources),
        'edge_type': types_of(example), 'edge_attr': example.edge_attr(EDGE_DIM), **arguments,
    }  # fmt: skip
    PARITY.check({**OPTIONS, **(options or {})}, **given)


@pytest.mark.parametrize('graph', SQUARE)
def test_graphs(graph):
    check(GRAPHS[graph]())


@pytest.mark.parametrize(
    'options',
    [
        {'heads': 1},
        {'concat': False},
        {'concat': False, 'root_weight': False},
        {'root_weight': False},
        {'bias': False},
        {'negative_slope': 0.0},
        {'negative_slope': -0.3},
        {'aggr': 'mean'},
        pytest.param({'edge_attr_emb_dim': 64, 'heads': 4}, marks=pytest.mark.slow),
        {'flow': 'target_to_source'},
    ],
    ids=str,
)
def test_options(options):
    check(GRAPHS['repeated edges'](), options)


def test_a_lazy_layer():
    _, x, *given = conv_and_inputs()
    layers = []
    for kind in (pyg.HEATConv, HEATConv):
        torch.manual_seed(0)
        layers.append(kind(**{**OPTIONS, 'in_channels': -1}))
        layers[-1](x, *given)
    torch.testing.assert_close(layers[1](x, *given), layers[0](x, *given))
    assert layers[1].note.reason is None


def test_one_feature_of_edges():
    example = GRAPHS['random']()
    check(example, {'edge_dim': 1}, edge_attr=example.edge_attr(1))


def test_many_types_of_few_edges():
    example = GRAPHS['random']()
    check(example, {'num_edge_types': 140}, edge_type=torch.arange(example.num_edges) % 140)


def test_sparse_tensor(needs_torch_sparse):
    example = GRAPHS['random']()
    source, target = example.edge_index
    order = (target * 60 + source).argsort()
    adjacency = SparseTensor(row=target, col=source, sparse_sizes=(60, 60))
    given = {'edge_type': types_of(example)[order], 'edge_attr': example.edge_attr(EDGE_DIM)[order]}
    check(example, edge_index=adjacency, **given)


def conv_and_inputs(num_edges: int = 300, options=None, dtype=torch.float32):
    torch.manual_seed(0)
    conv = HEATConv(**{**OPTIONS, **(options or {})}).to(dtype)
    x = torch.randn(20, FEATURES, dtype=dtype, requires_grad=True)
    edge_attr = torch.randn(num_edges, EDGE_DIM, dtype=dtype)
    return conv, x, random_edges(20, 20, num_edges), node_types(20), torch.arange(num_edges) % 3, edge_attr


def test_what_is_saved_does_not_grow_with_edges_times_width():
    saved, options = [], {'edge_attr_emb_dim': 32, 'edge_type_emb_dim': 32, 'out_channels': 32}
    for num_edges in (3000, 6000):
        conv, *given = conv_and_inputs(num_edges, options)
        saved.append(saved_bytes(lambda c=conv, g=given: c(*g), exclude=given))
        assert conv.note.reason is None
    # the score of an edge for each head and its type, which is kept with the graph
    assert saved[1] - saved[0] <= (4 * 2 + 8) * 3000


def test_dropout_is_the_same_of_neighbours_and_edges():
    conv, x, edge_index, types, edge_types, edge_attr = conv_and_inputs(options={'dropout': 0.5, 'heads': 1})
    with torch.no_grad():
        # neighbours and edges cancel, but for what is dropped of one alone
        conv.hetero_lin.weight.zero_()
        conv.hetero_lin.bias.fill_(1.0)
        conv.edge_attr_emb.weight.fill_(1.0)
        conv.lin.weight[:, :4], conv.lin.weight[:, 4:] = 0.25, -0.2
        conv.lin.bias.zero_()
        ones = torch.ones_like(edge_attr) / 3
        assert conv(x, edge_index, types, edge_types, ones).sub(1).abs().max() < 1e-5
        assert conv.note.reason is None
        conv.lin.weight[:, 4:] = 0.2
        first, second = (conv(x, edge_index, types, edge_types, ones) for _ in range(2))
        assert not torch.equal(first, second)
        assert first.mean().item() == pytest.approx(3, rel=0.2)
        torch.testing.assert_close(conv.eval()(x, edge_index, types, edge_types, ones), torch.full((20, 4), 3.0))


def test_gradients_and_their_gradients():
    options = {'in_channels': FEATURES, 'out_channels': 2, 'edge_attr_emb_dim': 2, 'edge_type_emb_dim': 2}
    conv, x, edge_index, types, edge_types, edge_attr = conv_and_inputs(12, options, torch.float64)
    x, edge_attr = x.detach()[:5].requires_grad_(), edge_attr.requires_grad_()
    parameters = {name: p for name, p in conv.named_parameters() if 'hetero' not in name}

    def function(x, edge_attr, *values):
        given = dict(zip(parameters, values, strict=True))
        arguments = x, edge_index % 5, types[:5], edge_types, edge_attr
        return torch.func.functional_call(conv, given, arguments)

    assert torch.autograd.gradcheck(function, (x, edge_attr, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (x, edge_attr, *parameters.values()))
    assert conv.note.reason is None


def test_active_rows():
    conv, x, *given = conv_and_inputs(options={'heads': 2})
    mask = torch.arange(20) < 4
    expected = conv(conv(x, *given), *given)[mask]
    with pygfuse.active(mask):
        found = conv(conv(x, *given), *given)
    torch.testing.assert_close(found[mask], expected)
    gradients = [torch.autograd.grad(out.square().sum(), (x, *conv.parameters())) for out in (expected, found[mask])]
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ('place', 'change', 'message'),
    [
        (2, lambda types: types + 3, "'node_type' to hold indices 0 to 3"),
        (2, lambda types: types[1:], "'node_type' to hold 20 integers"),
        (3, lambda types: types + 3, 'relations 0 to 4'),
        (3, lambda types: types[1:], r"'edge_type' of shape \[300\]"),
        (4, lambda values: values[:, :2], r"'edge_attr' of shape \[300, 3\]"),
        (4, lambda values: None, "'edge_attr' to be given"),
    ],
)
def test_bad_input(place, change, message):
    conv, *given = conv_and_inputs()
    given[place] = change(given[place])
    with pytest.raises(ValueError, match=message):
        conv(*given)


@pytest.mark.parametrize('name', ['edge_type_emb', 'edge_attr_emb', 'att', 'lin'])
def test_maps_that_are_watched_are_called(name):
    conv, *given = conv_and_inputs()
    expected = conv(*given)
    getattr(conv, name).register_forward_hook(lambda *given: None)
    torch.testing.assert_close(conv(*given), expected)
    assert conv.note.reason == f'a hook is registered on {name}'


def test_fuse_swaps_it():
    assert type(pygfuse.fuse(pyg.HEATConv(**OPTIONS))) is HEATConv


@pytest.mark.usefixtures('by_pyg')
def test_few_edges_run_pyg_s_path():
    torch.manual_seed(0)
    plain = pyg.HEATConv(**OPTIONS)
    conv = pygfuse.fuse(copy.deepcopy(plain))
    for num_edges, reason in ((100, 'so few edges that a row for each takes less'), (20_000, None)):
        example = Example(random_edges(30, 30, num_edges), 30, 30)
        given = example.x(FEATURES), example.edge_index, node_types(30), types_of(example), example.edge_attr(EDGE_DIM)
        torch.testing.assert_close(conv(*given), plain(*given), atol=1e-5, rtol=1e-5)
        assert conv.note.reason == reason
