from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch.nn import ELU, GELU, BatchNorm1d, LeakyReLU, Linear, PReLU, Sequential, SiLU, Softplus, Tanh
from torch_geometric.nn.models.schnet import ShiftedSoftplus
from torch_geometric.typing import SparseTensor

import pygfuse
from pygfuse.conv import FiLMConv
from pygfuse.memory import saved_bytes
from tests.conv.test_rgcn_conv import GRAPH_NAMES, types_of
from tests.support.parity import GRAPHS, Example, Parity, random_edges

RELATIONS, FEATURES, OUT = 5, 8, 4
PARITY = Parity(pyg.FiLMConv, FiLMConv)
ONE, MANY = {'num_relations': 1}, {'num_relations': RELATIONS}


def check(example: Example, options=None, **arguments) -> None:
    given = {'x': example.x(FEATURES), 'edge_index': example.edge_index, 'edge_type': types_of(example), **arguments}
    PARITY.check({'in_channels': FEATURES, 'out_channels': OUT, 'act': Tanh(), **MANY, **(options or {})}, **given)


@pytest.mark.parametrize('graph', GRAPH_NAMES)
@pytest.mark.parametrize('options', [ONE, MANY], ids=str)
def test_graphs(graph, options):
    check(GRAPHS[graph](), options)


@pytest.mark.parametrize('relations', [ONE, MANY], ids=str)
@pytest.mark.parametrize(
    'options',
    [
        {'aggr': 'add'},
        {'aggr': 'max'},
        {'aggr': 'min'},
        {'nn': Linear(FEATURES, 2 * OUT)},
        {'nn': Linear(FEATURES, 2 * OUT, bias=False)},
        {'nn': Sequential(Linear(FEATURES, 6), SiLU(), Linear(6, 2 * OUT), BatchNorm1d(2 * OUT))},
        {'in_channels': -1},
        {'flow': 'target_to_source'},
    ],
    ids=str,
)
def test_options(options, relations):
    check(GRAPHS['random'](), {**relations, **options})


# each compiles kernels of its own
MORE_ACTIVATIONS = [LeakyReLU(0.3), PReLU(), SiLU(), Softplus(), GELU('tanh'), torch.sigmoid]


@pytest.mark.parametrize(
    'act',
    [None, ELU(0.7), PReLU(OUT), F.elu, *(pytest.param(act, marks=pytest.mark.slow) for act in MORE_ACTIVATIONS)],
    ids=lambda act: getattr(act, '__name__', str(act)),
)
def test_activations(act):
    check(GRAPHS['random'](), {'act': act})


def test_two_sets_of_nodes():
    example = GRAPHS['bipartite, more sources']()
    pair = torch.randn(40, FEATURES), torch.randn(23, 3)
    for relations in (ONE, MANY):
        check(example, {'in_channels': (FEATURES, 3), **relations}, x=pair)


def test_types_are_the_values_of_a_sparse_tensor(needs_torch_sparse):
    example = GRAPHS['random']()
    source, target = example.edge_index
    adjacency = SparseTensor(row=target, col=source, value=types_of(example), sparse_sizes=(60, 60))
    check(example, edge_index=adjacency, edge_type=None)
    check(example, edge_index=adjacency, edge_type=torch.zeros(example.num_edges, dtype=torch.int64))


def test_many_relations_of_few_edges():
    example = GRAPHS['random']()
    check(example, {'num_relations': 140}, edge_type=torch.arange(example.num_edges) % 140)


def test_maps_that_are_watched_are_called():
    example = GRAPHS['random']()
    plain, fused = PARITY.make({'in_channels': FEATURES, 'out_channels': OUT, **MANY})
    rows = []
    fused.lins[3].register_forward_hook(lambda module, given, out: rows.append(len(out)))
    arguments = example.x(FEATURES), example.edge_index, types_of(example)
    torch.testing.assert_close(fused(*arguments), plain(*arguments))
    assert rows == [60]
    assert fused.note.reason is None


def conv_and_inputs(num_edges: int = 300, options=None, dtype=torch.float32):
    torch.manual_seed(0)
    conv = FiLMConv(**{'in_channels': FEATURES, 'out_channels': OUT, **MANY, **(options or {})}).to(dtype)
    x = torch.randn(20, FEATURES, dtype=dtype, requires_grad=True)
    return conv, x, random_edges(20, 20, num_edges), torch.arange(num_edges) % 3


@pytest.mark.parametrize('options', [ONE, MANY], ids=str)
def test_what_is_saved_does_not_grow_with_edges(options):
    saved = []
    for num_edges in (6000, 12000):
        conv, x, edge_index, edge_type = conv_and_inputs(num_edges, {'aggr': 'add', **options})
        saved.append(saved_bytes(lambda c=conv, a=(x, edge_index, edge_type): c(*a), exclude=[edge_index, x]))
        assert conv.note.reason is None
    # only pairs of a relation and two nodes that still had no edge
    assert saved[0] == saved[1]


@pytest.mark.parametrize('options', [ONE, MANY], ids=str)
def test_gradients_and_their_gradients(options):
    options = {'out_channels': 2, 'in_channels': 3, 'act': Tanh(), **options}
    conv, _, edge_index, edge_type = conv_and_inputs(12, options, torch.float64)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    parameters = dict(conv.named_parameters())

    def function(x, *values):
        given = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(conv, given, (x, edge_index % 5, edge_type))

    assert torch.autograd.gradcheck(function, (x, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (x, *parameters.values()))
    assert conv.note.reason is None


def test_active_rows():
    conv, x, edge_index, edge_type = conv_and_inputs(options={'out_channels': FEATURES})
    mask = torch.arange(20) < 4
    expected = conv(conv(x, edge_index, edge_type), edge_index, edge_type)[mask]
    with pygfuse.active(mask):
        found = conv(conv(x, edge_index, edge_type), edge_index, edge_type)
    torch.testing.assert_close(found[mask], expected)
    gradients = [torch.autograd.grad(out.square().sum(), (x, *conv.parameters())) for out in (expected, found[mask])]
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ('options', 'reason'),
    [
        ({'act': ShiftedSoftplus()}, 'the activation shifted_softplus has no form on edges'),
        ({'act': torch.square}, "act is 'square'"),
        ({'act': Sequential(Tanh(), SiLU())}, 'act is a Sequential'),
        ({'aggr': 'mul'}, "aggr='mul' has no fused form here"),
    ],
)
def test_what_is_not_fused_runs_pyg_and_says_so(options, reason):
    conv, x, edge_index, edge_type = conv_and_inputs(options=options)
    plain = pyg.FiLMConv(FEATURES, OUT, RELATIONS, **options)
    plain.load_state_dict(conv.state_dict())
    torch.testing.assert_close(conv(x, edge_index, edge_type), plain(x, edge_index, edge_type))
    assert conv.note.reason == reason


def test_an_activation_that_changes_after_a_call():
    act = GELU('tanh')
    conv, plain = FiLMConv(FEATURES, OUT, act=act), pyg.FiLMConv(FEATURES, OUT, act=act)
    plain.load_state_dict(conv.state_dict())
    x, edge_index = torch.randn(9, FEATURES), random_edges(9, 9, 40)
    for _ in range(2):
        torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))
    assert conv.note.reason is None
    act.approximate = 'none'
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))
    conv.act = plain.act = ShiftedSoftplus()
    assert torch.equal(conv(x, edge_index), plain(x, edge_index))
    assert conv.note.reason == 'the activation shifted_softplus has no form on edges'


@pytest.mark.parametrize(
    ('act', 'name', 'values'),
    [
        (LeakyReLU(0.1), 'negative_slope', (0.1, 0.7, 0.1)),
        (ELU(), 'alpha', (1.0, 0.3)),
        (PReLU(), 'weight', (0.2, -3.0)),
    ],
)
@pytest.mark.usefixtures('by_pyg')
def test_numbers_of_an_activation_that_change_after_a_call(act, name, values):
    conv, plain = FiLMConv(FEATURES, OUT, act=act), pyg.FiLMConv(FEATURES, OUT, act=act)
    plain.load_state_dict(conv.state_dict())
    x, edge_index = torch.randn(9, FEATURES), random_edges(9, 9, 40)
    for value in values:
        if name == 'weight':
            act.weight = torch.nn.Parameter(torch.tensor([value]))
        else:
            setattr(act, name, value)
        for _ in range(3):
            torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))
    assert conv.note.reason is None


def test_bad_input():
    conv, x, edge_index, edge_type = conv_and_inputs()
    with pytest.raises(ValueError, match='relations 0 to 4'):
        conv(x, edge_index, edge_type + 3)
    with pytest.raises(ValueError, match="'edge_type' to be given"):
        conv(x, edge_index)
    with pytest.raises(ValueError, match="'x' to have 8 features"):
        conv(x[:, :3], edge_index, edge_type)


def test_one_relation_within_torch_compile():
    conv, x, edge_index, _ = conv_and_inputs(options=ONE)
    expected = copy.deepcopy(conv)(x, edge_index)
    torch.testing.assert_close(torch.compile(conv, backend='eager')(x, edge_index), expected)
    assert conv.note.reason is None


def test_fuse_swaps_it():
    assert type(pygfuse.fuse(pyg.FiLMConv(4, 4, 2))) is FiLMConv
