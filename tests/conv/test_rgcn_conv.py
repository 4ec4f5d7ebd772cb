from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import SparseTensor

import pygfuse
from pygfuse.conv import FastRGCNConv, RGCNConv
from pygfuse.memory import saved_bytes
from tests.support.parity import GRAPHS, Example, Parity, random_edges

RELATIONS, FEATURES, OUT = 5, 8, 4
CLASSES = {'RGCNConv': Parity(pyg.RGCNConv, RGCNConv), 'FastRGCNConv': Parity(pyg.FastRGCNConv, FastRGCNConv)}
GRAPH_NAMES = [
    'random', 'bipartite, more sources', 'bipartite, more targets', 'isolated nodes', 'no edges', 'repeated edges',
    'self-loops', 'one node', 'one node with a loop',
]  # fmt: skip
OPTIONS = [
    {},
    {'aggr': 'add'},
    {'num_bases': 3},
    {'num_blocks': 2},
    {'num_blocks': 2, 'aggr': 'add'},
    {'root_weight': False},
    {'bias': False},
    # neighbours are summed before they are mapped, or mapped before they are summed
    {'out_channels': 16},
    {'out_channels': 2},
    {'out_channels': 16, 'num_blocks': 4},
    {'out_channels': 16, 'aggr': 'add', 'num_bases': 2},
]
EXTREMES = [{'aggr': 'max'}, {'aggr': 'min', 'num_blocks': 2}, {'aggr': 'max', 'num_bases': 2}]


def types_of(example: Example, used: int = 3) -> torch.Tensor:
    """A relation for each edge; of the last ones there are no edges."""
    return torch.randint(used, (example.num_edges,), generator=torch.Generator().manual_seed(3))


def check(name: str, example: Example, options=None, **arguments) -> None:
    given = {'x': example.x(FEATURES), 'edge_index': example.edge_index, 'edge_type': types_of(example), **arguments}
    options = {'in_channels': FEATURES, 'out_channels': OUT, 'num_relations': RELATIONS, **(options or {})}
    CLASSES[name].check(options, **given)


@pytest.mark.parametrize('graph', GRAPH_NAMES)
@pytest.mark.parametrize('options', [{}, {'out_channels': 16}, {'out_channels': 2}, {'num_blocks': 2}], ids=str)
def test_graphs(graph, options):
    check('RGCNConv', GRAPHS[graph](), options)


@pytest.mark.parametrize('options', [*OPTIONS, *EXTREMES], ids=str)
def test_options(options):
    check('RGCNConv', GRAPHS['random'](), options)


@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_options_of_the_fast_one(options):
    check('FastRGCNConv', GRAPHS['repeated edges'](), options)


@pytest.mark.parametrize('name', CLASSES)
@pytest.mark.parametrize('options', [{}, {'num_bases': 3}, {'aggr': 'add'}, {'aggr': 'max'}], ids=str)
def test_embeddings_of_nodes(name, options):
    if name == 'FastRGCNConv' and options.get('aggr') == 'max':
        pytest.skip('PyG has none')
    example = GRAPHS['random']()
    check(name, example, {'in_channels': 60, **options}, x=None)
    indices = torch.randint(70, (60,), generator=torch.Generator().manual_seed(4))
    check(name, example, {'in_channels': 70, **options}, x=indices)


def test_embeddings_of_both_ends():
    example = GRAPHS['bipartite, more sources']()
    pair = torch.randint(70, (40,)), torch.randint(30, (23,))
    check('RGCNConv', example, {'in_channels': (70, 30)}, x=pair)
    check('RGCNConv', example, {'in_channels': (40, 30), 'num_bases': 2}, x=(None, pair[1]))


@pytest.mark.parametrize('name', CLASSES)
@pytest.mark.parametrize('options', [{}, {'out_channels': 16}], ids=str)
def test_flow(name, options):
    check(name, GRAPHS['random'](), {'flow': 'target_to_source', **options})


@pytest.mark.parametrize('dtype', [torch.int32, torch.uint8])
def test_narrow_integers(dtype):
    example = GRAPHS['random']()
    edges, types = example.edge_index.to(dtype), types_of(example).to(dtype)
    options = {'in_channels': FEATURES, 'out_channels': OUT, 'num_relations': RELATIONS}
    plain, fused = CLASSES['RGCNConv'].make(options)
    expected = plain(example.x(FEATURES), example.edge_index, types_of(example))
    torch.testing.assert_close(fused(example.x(FEATURES), edges, types), expected)
    assert fused.note.reason is None


@pytest.mark.parametrize('name', CLASSES)
def test_types_are_the_values_of_a_sparse_tensor(needs_torch_sparse, name):
    example = GRAPHS['random']()
    source, target = example.edge_index
    adjacency = SparseTensor(row=target, col=source, value=types_of(example), sparse_sizes=(60, 60))
    check(name, example, edge_index=adjacency, edge_type=None)


def test_types_beside_those_of_a_sparse_tensor_do_not_count(needs_torch_sparse):
    example = GRAPHS['random']()
    source, target = example.edge_index
    adjacency = SparseTensor(row=target, col=source, value=types_of(example), sparse_sizes=(60, 60))
    check('RGCNConv', example, edge_index=adjacency, edge_type=torch.zeros(example.num_edges, dtype=torch.int64))


def test_many_relations_of_few_edges():
    example = GRAPHS['random']()
    types = torch.arange(example.num_edges) % 140
    check('RGCNConv', example, {'num_relations': 140}, edge_type=types)


def test_more_rows_of_a_relation_than_are_taken_at_once():
    example = Example(random_edges(5000, 4000, 9000), 5000, 4000)
    for out in (2, 16):
        check('RGCNConv', example, {'out_channels': out, 'num_relations': 2}, edge_type=torch.arange(9000) % 2)


def conv_and_inputs(num_edges: int = 300, options=None, dtype=torch.float32):
    torch.manual_seed(0)
    options = {'in_channels': FEATURES, 'out_channels': OUT, 'num_relations': RELATIONS, **(options or {})}
    conv = RGCNConv(**options).to(dtype)
    x = torch.randn(20, FEATURES, dtype=dtype, requires_grad=True)
    return conv, x, random_edges(20, 20, num_edges), torch.arange(num_edges) % 3


@pytest.mark.parametrize('options', [{}, {'out_channels': 16}, {'num_blocks': 2}, {'aggr': 'add'}], ids=str)
def test_what_is_saved_does_not_grow_with_edges_times_width(options):
    saved = []
    for num_edges in (3000, 6000):
        conv, x, edge_index, edge_type = conv_and_inputs(num_edges, options)
        saved.append(saved_bytes(lambda c=conv, a=(x, edge_index, edge_type): c(*a), exclude=[edge_index, x]))
        assert conv.note.reason is None
    # of a mean 4 bytes an edge are kept, its share, with the graph
    assert saved[1] - saved[0] <= 4 * 3000


@pytest.mark.parametrize(
    'options',
    [{}, {'out_channels': 12, 'aggr': 'add'}, {'num_blocks': 2, 'num_bases': None}, {'num_bases': 2}],
    ids=str,
)
def test_gradients_and_their_gradients(options):
    options = {'num_relations': 3, 'out_channels': 2, 'bias': False, **options}
    conv, x, edge_index, edge_type = conv_and_inputs(12, options, torch.float64)
    x = x.detach()[:5].requires_grad_()
    edge_index = edge_index % 5
    parameters = dict(conv.named_parameters())

    def function(x, *values):
        given = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(conv, given, (x, edge_index, edge_type))

    assert torch.autograd.gradcheck(function, (x, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (x, *parameters.values()))
    assert conv.note.reason is None


def test_gradients_of_gradients_of_embeddings():
    options = {'in_channels': 5, 'out_channels': 2, 'num_bases': 2, 'num_relations': 3, 'bias': False}
    conv, _, edge_index, edge_type = conv_and_inputs(12, options, torch.float64)
    edge_index = edge_index % 5

    def function(*values):
        given = dict(zip(dict(conv.named_parameters()), values, strict=True))
        return torch.func.functional_call(conv, given, (None, edge_index, edge_type))

    assert torch.autograd.gradcheck(function, tuple(conv.parameters()))
    assert torch.autograd.gradgradcheck(function, tuple(conv.parameters()))


@pytest.mark.parametrize('given', ['features', 'embeddings'])
def test_ties_over_a_sparse_tensor_run_pyg(needs_torch_sparse, given):
    example = GRAPHS['random']()
    source, target = example.edge_index
    adjacency = SparseTensor(row=target, col=source, value=types_of(example), sparse_sizes=(60, 60))
    conv = RGCNConv(FEATURES if given == 'features' else 60, OUT, RELATIONS, aggr='max')
    x = example.x(FEATURES).requires_grad_() if given == 'features' else None
    (conv.weight if given == 'features' else conv.root).requires_grad_(False)
    conv(x, adjacency)
    assert 'gradient of a tie' in conv.note.reason


def test_no_edges_as_they_come():
    with pygfuse.force_mapping('scatter'):
        check('RGCNConv', GRAPHS['no edges'](), {'out_channels': 2})


def test_writes_to_the_types_are_noticed():
    conv, x, edge_index, edge_type = conv_and_inputs()
    conv(x, edge_index, edge_type)
    plain = pyg.RGCNConv(FEATURES, OUT, RELATIONS)
    plain.load_state_dict(conv.state_dict())
    edge_type[5] = 4
    torch.testing.assert_close(conv(x, edge_index, edge_type), plain(x, edge_index, edge_type))
    edge_index[0, 7] = 3
    torch.testing.assert_close(conv(x, edge_index, edge_type), plain(x, edge_index, edge_type))
    torch.testing.assert_close(conv(x, edge_index, 4 - edge_type), plain(x, edge_index, 4 - edge_type))


def test_what_was_made_in_inference_mode_serves_training():
    conv, x, edge_index, edge_type = conv_and_inputs()
    with torch.inference_mode():
        conv(x, edge_index, edge_type)
    conv(x, edge_index, edge_type).sum().backward()
    assert x.grad is not None


def test_copies():
    conv, x, edge_index, edge_type = conv_and_inputs()
    expected = conv(x, edge_index, edge_type)
    torch.testing.assert_close(copy.deepcopy(conv)(x, edge_index, edge_type), expected)


def test_active_rows():
    conv, x, edge_index, edge_type = conv_and_inputs()
    mask = torch.zeros(20, dtype=torch.bool)
    mask[:4] = True
    # neighbours are mapped first, or reduced first
    for options in ({}, {'aggr': 'max'}):
        conv = conv_and_inputs(options=options)[0]
        expected = conv(conv_of_first(x), edge_index, edge_type)[mask]
        with pygfuse.active(mask):
            found = conv(conv_of_first(x), edge_index, edge_type)
        torch.testing.assert_close(found[mask], expected)
        gradients = [torch.autograd.grad(out.square().sum(), (x, conv.weight)) for out in (expected, found[mask])]
        torch.testing.assert_close(gradients[1], gradients[0])


def conv_of_first(x):
    torch.manual_seed(1)
    return RGCNConv(FEATURES, FEATURES, RELATIONS)(x, random_edges(20, 20, 50), torch.arange(50) % 3).relu()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'edge_type': None}, "Expected 'edge_type' to be given"),
        ({'edge_type': torch.zeros(7, dtype=torch.int64)}, r'of shape \[300\].*got \[7\]'),
        ({'edge_type': torch.zeros(300)}, 'to hold integers'),
        ({'edge_type': torch.full((300,), 5)}, r'relations 0 to 4 \(got 5 at position 0\)'),
        ({'edge_type': torch.arange(300) - 1}, r'relations 0 to 4 \(got -1 at position 0\)'),
        ({'x': torch.randn(20, 3)}, "'x' to have 8 features"),
        ({'x': torch.arange(20)}, "'x' to hold indices 0 to 7"),
        ({'x': torch.zeros(20, 1, dtype=torch.int64)}, r'\[nodes\]'),
        ({'edge_index': torch.full((2, 300), 20)}, 'holds node 20'),
    ],
)
def test_bad_input(change, message):
    conv, x, edge_index, edge_type = conv_and_inputs()
    given = {'x': x, 'edge_index': edge_index, 'edge_type': edge_type, **change}
    with pytest.raises(ValueError, match=message):
        conv(**given)


def test_each_call_is_looked_at():
    conv, _, edge_index, edge_type = conv_and_inputs(options={'in_channels': 20})
    x = torch.arange(20)
    for _ in range(2):
        conv(x, edge_index, edge_type)
    with pytest.raises(ValueError, match='to hold indices 0 to 19'):
        conv(x + 1, edge_index, edge_type)


def test_what_is_not_fused_runs_pyg_and_says_so():
    conv, x, edge_index, edge_type = conv_and_inputs()
    with torch.autocast('cpu', torch.bfloat16):
        conv(x, edge_index, edge_type)
    assert conv.note.reason == 'autocast is on'
    conv, x, edge_index, edge_type = conv_and_inputs(options={'aggr': 'mul'})
    conv(x, edge_index, edge_type)
    assert 'mul' in conv.note.reason


def test_fuse_swaps_both():
    model = pygfuse.fuse(torch.nn.ModuleList([pyg.RGCNConv(4, 4, 2), pyg.FastRGCNConv(4, 4, 2)]))
    assert [type(layer) for layer in model] == [RGCNConv, FastRGCNConv]


@pytest.mark.filterwarnings('ignore:.*torch.jit.script.* is deprecated')
@pytest.mark.parametrize('name', CLASSES)
def test_torchscript_compiles_the_forward_of_pyg(name):
    plain, fused = CLASSES[name].make({'in_channels': FEATURES, 'out_channels': OUT, 'num_relations': RELATIONS})
    example = GRAPHS['random']()
    arguments = example.x(FEATURES), example.edge_index, types_of(example)
    expected = plain(*arguments)  # which writes what its script reads
    assert torch.equal(torch.jit.script(fused)(*arguments), torch.jit.script(plain)(*arguments))
    torch.testing.assert_close(fused(*arguments), expected)
    assert fused.note.reason is None
