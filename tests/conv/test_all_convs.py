"""What holds of every convolution. The layers and their inputs are in `table`."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import pickle

import pytest
import torch
import torch_geometric.nn
from torch.autograd import forward_ad, gradcheck
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv.utils import cheatsheet

import pygfuse
from pygfuse.swap import FUSED_CLASSES
from tests.support import cases as table
from tests.support.cases import (
    CHANNELS,
    EDGE,
    FA,
    FEATURES,
    GATED,
    GATV2,
    GCN_WEIGHTS,
    GINE_EDGES,
    GRAPH_WEIGHTS,
    LAYERS,
    SAGE,
    TRANSFORMER,
    TRANSFORMER_EDGES,
    Layer,
)
from tests.support.parity import ADJACENCIES, BIPARTITE, GRAPHS, SPARSE, Example, random_edges

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')

RANDOM = GRAPHS['random']()
LOOPS = GRAPHS['self-loops']()
every = pytest.mark.parametrize('layer', LAYERS, ids=str)


def some(layers, fast):
    """Layers as parameters of a test, those that are not among the fast ones marked slow: each compiles kernels."""
    marks = {layer: () if layer in fast else pytest.mark.slow for layer in layers}
    return pytest.mark.parametrize('layer', [pytest.param(layer, marks=marks[layer]) for layer in layers], ids=str)


# one layer of each kind: sums with weights, extremes, softmax, products of edges, networks, Gaussians
of_each_kind = some(LAYERS, fast=[table.GCN_WEIGHTS, SAGE, TRANSFORMER_EDGES, table.CG_EDGES, EDGE, table.GMM])


# Parity over graphs, adjacencies, flows and widths


@every
@pytest.mark.parametrize('graph', GRAPHS)
def test_graphs(graph, layer):
    if layer.square and graph in BIPARTITE:
        pytest.skip('has no bipartite form')
    if graph == 'bipartite, more targets' and layer is table.GATV2_EDGES:
        pytest.skip('PyG fails here')
    # float32 where sums are short, and where they are long
    layer.check(GRAPHS[graph](), narrow=graph in ('random', 'hub'))


def num_entries(adjacency) -> int:
    """The number of edges, which is smaller than that of the example where repeats were coalesced."""
    if isinstance(adjacency, torch.Tensor):
        return adjacency.shape[1] if adjacency.layout is torch.strided else adjacency.values().numel()
    return adjacency.nnz()


def why_skipped(layer: Layer, adjacency: str) -> str | None:
    if adjacency in SPARSE and layer in (table.GATV2_EDGES, FA, table.FA_WEIGHTS):
        return 'runs the path of PyG'
    if adjacency == 'CSC' and (layer.name == 'GCNConv' or layer.edge == 'edge_attr'):
        return 'PyG fails here'
    return None


def what_pyg_takes(layer: Layer, adjacency: str, example: Example):
    """The adjacency in a form that PyG takes where it does not take this one, else None."""
    if adjacency == 'int32':
        return example.edge_index
    if adjacency == 'CSC':
        return ADJACENCIES['CSR'](example)
    if adjacency == 'EdgeIndex by column' and layer is table.GRAPH:
        return ADJACENCIES[adjacency](example).as_tensor()  # its product is one of float32 only
    return None


@of_each_kind
@pytest.mark.parametrize('graph', ['random', 'repeated edges'])
@pytest.mark.parametrize('adjacency', [name for name in ADJACENCIES if name != 'edge_index'])
def test_adjacencies(adjacency, graph, layer, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    reason = why_skipped(layer, adjacency)
    if reason is not None:
        pytest.skip(reason)
    example = GRAPHS[graph]()
    edge_index = ADJACENCIES[adjacency](example)
    layer.check(
        example,
        **layer.inputs(example, num_entries(edge_index)),
        edge_index=edge_index,
        pyg_edge_index=what_pyg_takes(layer, adjacency, example),
        narrow=False,
    )


@of_each_kind
@pytest.mark.parametrize('graph', ['random', 'self-loops'])
@pytest.mark.parametrize('adjacency', ['edge_index', 'EdgeIndex by row'])
def test_the_reversed_flow(adjacency, graph, layer):
    example = GRAPHS[graph]()
    options = {'flow': 'target_to_source'}
    layer.check(example, options=options, edge_index=ADJACENCIES[adjacency](example), narrow=False)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer.in_channels and layer.lazy], ids=str)
def test_lazy_layers(layer):
    options = {**layer.options, layer.in_channels: -1, **({'residual': True} if layer.name == 'GATv2Conv' else {})}
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    arguments = [inputs['x'], RANDOM.edge_index, *([] if layer.edge is None else [inputs[layer.edge]])]
    found = []
    for kind in (layer.parity.pyg, layer.parity.fused):
        torch.manual_seed(0)
        conv = kind(**options).double()
        found.append((conv(*arguments), *conv.parameters(), conv(*arguments)))
    assert conv.note.reason is None
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


@some(
    [layer for layer in LAYERS if not layer.square and layer.in_channels], fast=[GATV2, TRANSFORMER_EDGES, SAGE, GATED]
)
@pytest.mark.parametrize('graph', BIPARTITE)
def test_bipartite_features_of_different_widths(graph, layer):
    if graph == 'bipartite, more targets' and layer is table.GATV2_EDGES:
        pytest.skip('PyG fails here')
    example = GRAPHS[graph]()
    inputs = layer.inputs(example)
    inputs['x'] = (inputs['x'][0], example.x(5, seed=3)[1])
    options = {layer.in_channels: (FEATURES, 5)}
    if layer.name == 'CGConv':
        options['aggr'] = 'mean'
    layer.check(example, **inputs, options=options, narrow=False)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer.takes_size], ids=str)
@pytest.mark.parametrize('graph', BIPARTITE)
def test_without_features_of_targets(graph, layer):
    example = GRAPHS[graph]()
    inputs = layer.inputs(example)
    inputs['x'] = (inputs['x'][0], None)
    size = (example.num_sources, example.num_targets)
    layer.check(example, **inputs, size=size, narrow=False)
    inputs['x'] = layer.inputs(example)['x']
    layer.check(example, **inputs, size=size, narrow=False)


@some(LAYERS, fast=[GRAPH_WEIGHTS, TRANSFORMER])
def test_aggregations(layer):
    for aggr in layer.aggregations:
        layer.check(RANDOM, options={'aggr': aggr}, narrow=False)


EXTREMES = [layer for layer in LAYERS if 'max' in layer.aggregations]


@some(EXTREMES, fast=[SAGE, EDGE, GINE_EDGES])
@pytest.mark.parametrize('aggr', ['max', 'min'])
@pytest.mark.parametrize('graph', ['random', 'repeated edges', 'isolated nodes'])
def test_ties_share_gradients_as_in_pyg(graph, aggr, layer):
    example = GRAPHS[graph]()
    inputs = layer.inputs(example)
    inputs['x'] = inputs['x'].relu().round()
    if layer.edge is not None:
        inputs[layer.edge] = inputs[layer.edge].round()
    options = {'aggr': aggr}
    layer.check(example, **inputs, options=options, narrow=False)


def _maps_to(layer: Layer, nn: torch.nn.Module, **options) -> tuple[Layer, dict]:
    return layer, {'nn': nn, **options}


OPTIONS = [
    *[
        (layer, options)
        for layer in (GATV2, table.GATV2_EDGES)
        for options in (
            {'concat': False, 'residual': True},
            {'residual': True, 'bias': False},
            {'share_weights': True},
            {'share_weights': True, 'add_self_loops': False},
            {'negative_slope': 0.0},
            {'negative_slope': 1.5},
            {'negative_slope': -0.1, 'add_self_loops': False},
            {'in_channels': (FEATURES, FEATURES)},
        )
    ],
    *[
        (layer, options)
        for layer in (TRANSFORMER, TRANSFORMER_EDGES)
        for options in (
            {'concat': False},
            {'beta': True},
            {'beta': True, 'concat': False},
            {'root_weight': False},
            {'root_weight': False, 'beta': True},
            {'bias': False},
            {'dropout': 0.0, 'in_channels': (FEATURES, FEATURES)},
        )
    ],
    (SAGE, {'normalize': True}),
    (SAGE, {'project': True}),
    (SAGE, {'root_weight': False, 'bias': False}),
    (SAGE, {'normalize': True, 'project': True, 'aggr': 'max'}),
    (table.GRAPH, {'bias': False}),
    (table.GIN, {'eps': 0.3, 'train_eps': False}),
    (table.GINE, {'eps': 0.3, 'train_eps': False}),
    (GINE_EDGES, {'nn': torch.nn.Linear(FEATURES, 5), 'eps': -1.0}),
    _maps_to(EDGE, torch.nn.Linear(2 * FEATURES, CHANNELS, bias=False)),
    _maps_to(EDGE, torch_geometric.nn.Linear(2 * FEATURES, CHANNELS)),
    (table.GMM, {'bias': False}),
    (table.GMM, {'kernel_size': 1}),
    (table.AGNN, {'requires_grad': False}),
    (table.AGNN, {'add_self_loops': False}),
    (FA, {'eps': 0.0}),
    (FA, {'add_self_loops': False}),
    (FA, {'eps': -0.7, 'flow': 'target_to_source'}),
    (GATED, {'act': torch.nn.Tanh()}),
    (GATED, {'act': torch.nn.ReLU()}),
    (GATED, {'root_weight': False, 'bias': False}),
    (table.CG, {'batch_norm': True}),
    (table.CG, {'bias': False}),
    (table.CG_EDGES, {'batch_norm': True, 'aggr': 'mean'}),
]


@pytest.mark.parametrize(('layer', 'options'), OPTIONS, ids=str)
def test_options(layer, options):
    layer.check(LOOPS, options=options, narrow=False)


@pytest.mark.parametrize('dim', [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_pseudo_coordinates_of_other_dimensions(dim):
    table.GMM.check(RANDOM, options={'dim': dim}, edge_attr=RANDOM.edge_attr(dim), narrow=False)


SHAPES = [(1, 1), (1, 3), (2, 8), (3, 7), (1, 64), (5, 17)]


@pytest.mark.slow
@every
@pytest.mark.parametrize(('heads', 'channels'), SHAPES)
def test_shapes(heads, channels, layer):
    width = heads * channels
    options = dict(layer.options)
    inputs = layer.inputs(RANDOM, features=width)
    for name in ('in_channels', 'out_channels', 'channels'):
        if name in options:
            options[name] = width
    if 'heads' in options:
        options |= {'heads': heads, 'out_channels': channels}
    if layer.name == 'GMMConv':
        options |= {'kernel_size': heads, 'out_channels': channels}
    if layer.name.startswith('GIN'):
        options['nn'] = table.mlp(width)
        if layer.width == FEATURES:
            inputs['edge_attr'] = RANDOM.edge_attr(width)
    if layer.name == 'EdgeConv':
        options['nn'] = torch.nn.Linear(2 * width, width)
    layer.check(RANDOM, **inputs, options=options)


@every
def test_features_that_are_not_contiguous(layer):
    pyg, fused = layer.pair(torch.float64)
    inputs = {name: value.double().t().contiguous().t() for name, value in layer.inputs(RANDOM).items()}
    torch.testing.assert_close(
        fused(edge_index=RANDOM.edge_index, **inputs), pyg(edge_index=RANDOM.edge_index, **inputs)
    )


# Autograd

SMALL = Example(torch.tensor([[0, 1, 2, 2, 3, 1, 1, 3], [1, 2, 0, 1, 3, 1, 2, 0]]), 4, 4)


@every
def test_gradients(layer):
    check_gradients(layer)


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_gradients_under_dropout(layer):
    check_gradients(layer, dropout=0.5)


def check_gradients(layer: Layer, **options) -> None:
    conv = layer.fused(**options).double()
    inputs = layer.inputs(SMALL, dtype=torch.float64)
    leaves = [value.requires_grad_() for value in inputs.values()]
    names = [name for name, _ in conv.named_parameters()]

    def run(*values):
        torch.manual_seed(5)  # the same edges drop in every evaluation
        given = dict(zip(inputs, values[: len(inputs)], strict=True))
        parameters = dict(zip(names, values[len(inputs) :], strict=True))
        return torch.func.functional_call(conv, parameters, (), {**given, 'edge_index': SMALL.edge_index})

    assert gradcheck(run, (*leaves, *conv.parameters()))
    assert conv.note.reason is None


@some(LAYERS, fast=[TRANSFORMER_EDGES, GCN_WEIGHTS])
def test_a_gradient_of_one_input_alone(layer):
    """Only the walks that this gradient needs run."""
    pyg, fused = layer.pair(torch.float64)
    pyg.requires_grad_(False)
    fused.requires_grad_(False)
    for wanted in layer.inputs(RANDOM):
        found = []
        for conv in (pyg, fused):
            inputs = layer.inputs(RANDOM, dtype=torch.float64)
            inputs[wanted].requires_grad_()
            conv(edge_index=RANDOM.edge_index, **inputs).square().sum().backward()
            found.append(inputs[wanted].grad)
        torch.testing.assert_close(found[1], found[0])


@every
def test_without_gradients(layer):
    conv = layer.fused().double()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    expected = conv(edge_index=RANDOM.edge_index, **inputs).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = conv(edge_index=RANDOM.edge_index, **inputs)
            assert not out.requires_grad
            assert torch.equal(out, expected)
            assert torch.equal(conv(edge_index=RANDOM.edge_index.clone(), **inputs), expected)


@every
def test_training_on_edges_that_were_met_in_inference_mode(layer):
    conv, edge_index = layer.fused().double(), RANDOM.edge_index.clone()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    with torch.inference_mode():
        expected = conv(edge_index=edge_index, **inputs)
    out = conv(edge_index=edge_index, **{name: value.requires_grad_() for name, value in inputs.items()})
    assert torch.equal(out, expected.clone())
    out.sum().backward()
    assert inputs['x'].grad is not None


@pytest.mark.slow
@every
def test_a_double_backward(layer):
    pyg, fused = layer.pair(torch.float64)
    found = []
    for conv in (pyg, fused):
        inputs = {name: value.requires_grad_() for name, value in layer.inputs(SMALL, dtype=torch.float64).items()}
        out = conv(edge_index=SMALL.edge_index, **inputs)
        (first,) = torch.autograd.grad(out.square().sum(), inputs['x'], create_graph=True)
        found.append(
            torch.autograd.grad(first.square().sum(), [*inputs.values(), *conv.parameters()], allow_unused=True)
        )
    for got, expected in zip(found[1], found[0], strict=True):
        if expected is None:
            assert got is None or not got.any()
        else:
            torch.testing.assert_close(got, expected)


@every
def test_a_batch_of_gradients(layer):
    found = []
    for conv in layer.pair(torch.float64):
        inputs = {name: value.requires_grad_() for name, value in layer.inputs(SMALL, dtype=torch.float64).items()}
        out = conv(edge_index=SMALL.edge_index, **inputs)
        grads = torch.randn(3, *out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        given = [*inputs.values(), *conv.parameters()]
        found.append(torch.autograd.grad(out, given, grads, is_grads_batched=True))
    assert conv.note.reason is None
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


# Dropout


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_dropout_is_decided_by_the_seed(layer):
    conv = layer.fused(dropout=0.5).double()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)

    def run(seed: int | None = None):
        if seed is not None:
            torch.manual_seed(seed)
        return conv(edge_index=RANDOM.edge_index, **inputs)

    first = run(0)
    assert not torch.equal(run(), first)
    assert torch.equal(run(0), first)
    assert not torch.equal(run(1), first)
    assert conv.note.reason is None
    conv.eval()
    plain = layer.parity.fused(**{**layer.options, 'dropout': 0.0}).double()
    plain.load_state_dict(conv.state_dict())
    assert torch.equal(run(), plain(edge_index=RANDOM.edge_index, **inputs))


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_dropout_keeps_the_expectation(layer):
    conv = layer.fused(dropout=0.3).double()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    with torch.no_grad():
        expected = conv.eval()(edge_index=RANDOM.edge_index, **inputs)
        conv.train()
        torch.manual_seed(0)
        runs = torch.stack([conv(edge_index=RANDOM.edge_index, **inputs) for _ in range(400)])
    deviation = runs.std(dim=0) / 400**0.5
    assert bool(((runs.mean(dim=0) - expected).abs() <= 6 * deviation + 1e-12).all())


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_dropout_of_everything(layer):
    options = {'dropout': 1.0, **({'eps': 0.0} if layer.name == 'FAConv' else {})}
    pyg, fused = layer.pair(torch.float64, **options)
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    torch.testing.assert_close(
        fused(edge_index=RANDOM.edge_index, **inputs), pyg(edge_index=RANDOM.edge_index, **inputs)
    )
    assert fused.note.reason is None


# The class


@every
def test_constructor_and_text_are_those_of_pyg(layer):
    kinds = layer.parity.pyg, layer.parity.fused
    assert issubclass(kinds[1], kinds[0])
    assert inspect.signature(kinds[1].__init__) == inspect.signature(kinds[0].__init__)
    forwards = [list(inspect.signature(kind.forward).parameters) for kind in kinds]
    assert forwards[0] == forwards[1]
    torch.manual_seed(0)
    pyg = kinds[0](**copy.deepcopy(layer.options))
    torch.manual_seed(0)
    fused = kinds[1](**copy.deepcopy(layer.options))
    assert repr(fused) == repr(pyg)
    expected, got = pyg.state_dict(), fused.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[name], expected[name]) for name in expected)
    pyg.load_state_dict(fused.state_dict())


@every
@pytest.mark.parametrize('after_a_call', [False, True])
def test_copies_compute_the_same(after_a_call, layer):
    conv = layer.fused().double()
    inputs = {name: value.requires_grad_() for name, value in layer.inputs(RANDOM, dtype=torch.float64).items()}
    if after_a_call:
        conv(edge_index=RANDOM.edge_index, **inputs).sum().backward()
    expected = conv(edge_index=RANDOM.edge_index, **inputs)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert type(twin) is layer.parity.fused
        assert torch.equal(twin(edge_index=RANDOM.edge_index, **inputs), expected)


@every
def test_swapping_there_and_back(layer):
    pyg, _ = layer.pair(torch.float64)
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    expected = pyg(edge_index=RANDOM.edge_index, **inputs)
    fused = pygfuse.fuse(copy.deepcopy(pyg))
    assert type(fused) is layer.parity.fused
    torch.testing.assert_close(fused(edge_index=RANDOM.edge_index, **inputs), expected)
    (row,) = pygfuse.report(fused, file=io.StringIO())
    assert row.why_not is None
    assert torch.equal(pygfuse.unfuse(fused)(edge_index=RANDOM.edge_index, **inputs), expected)


# Compilation by torch


def compiled_and_eager(layer: Layer, backend: str) -> None:
    torch._dynamo.reset()
    conv = layer.fused().double()
    inputs = {name: value.double().requires_grad_() for name, value in layer.inputs(RANDOM).items()}
    found = []
    for function in (conv, torch.compile(conv, fullgraph=True, backend=backend)):
        out = function(edge_index=RANDOM.edge_index, **inputs)
        wanted = (*inputs.values(), *conv.parameters())
        found.append((out, *torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)))
    for got, expected in zip(found[1], found[0], strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            torch.testing.assert_close(got, expected)


@every
def test_compiled_without_a_graph_break(layer):
    compiled_and_eager(layer, 'aot_eager')


@every
def test_exported(layer):
    _, fused = layer.pair()
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    program = torch.export.export(fused, (), inputs)
    inputs['edge_index'] = RANDOM.edge_index.flip(1)
    assert torch.equal(program.module()(**inputs), fused(**inputs))
    assert any('pygfuse' in str(node.target) for node in program.graph.nodes)


# What falls back


@every
def test_types_without_kernels_fall_back_and_autocast_where_it_must(layer):
    pyg, fused = layer.pair(torch.bfloat16)
    inputs = layer.inputs(RANDOM, dtype=torch.bfloat16)
    assert torch.equal(fused(edge_index=RANDOM.edge_index, **inputs), pyg(edge_index=RANDOM.edge_index, **inputs))
    assert 'bfloat16' in fused.note.reason
    pyg, fused = pyg.float(), fused.float()
    inputs = layer.inputs(RANDOM)
    with torch.autocast('cpu', torch.bfloat16):
        found = fused(edge_index=RANDOM.edge_index, **inputs)
        if fused.spec.autocast:
            assert fused.note.reason is None
        else:
            assert torch.equal(found, pyg(edge_index=RANDOM.edge_index, **inputs))
            assert fused.note.reason == 'autocast is on'


@every
def test_hooks_are_called(layer):
    pyg, fused = layer.pair()
    called = []
    fused.register_message_forward_hook(lambda *arguments: called.append(1))
    inputs = layer.inputs(RANDOM)
    torch.testing.assert_close(
        fused(edge_index=RANDOM.edge_index, **inputs), pyg(edge_index=RANDOM.edge_index, **inputs)
    )
    assert called
    assert 'hook' in fused.note.reason


@every
def test_a_subclass_that_changes_the_message_is_not_overruled(layer):
    fused = layer.fused()
    message = fused.message
    fused.message = lambda *arguments, **named: 2 * message(*arguments, **named)
    assert 'message' in fused.why_not()


@every
def test_another_aggregation_put_into_a_layer_falls_back(layer):
    pyg, fused = layer.pair()
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    for conv in (pyg, fused):
        conv.aggr_module = torch_geometric.nn.aggr.MinAggregation()
    assert torch.equal(fused(**inputs), pyg(**inputs))
    assert fused.note.reason.startswith('aggr_module is a MinAggregation')


@every
def test_hooks_of_the_aggregation_are_called(layer):
    pyg, fused = layer.pair()
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    for conv in (pyg, fused):
        conv.aggr_module.register_forward_hook(lambda module, given, found: 2 * found)
    assert torch.equal(fused(**inputs), pyg(**inputs))
    assert fused.note.reason == 'a hook is registered on aggr_module'


def other_aggregations():
    for layer in LAYERS:
        for aggr in ('max', 'std', ['add', 'mean'], 'lstm', 'softmax'):
            if aggr not in layer.aggregations:
                yield pytest.param(layer, aggr, id=f'{layer} {aggr}')


@pytest.mark.parametrize(('layer', 'aggr'), list(other_aggregations()))
def test_other_aggregations_fall_back(layer, aggr):
    try:
        pyg = layer.parity.pyg(**{**copy.deepcopy(layer.options), 'aggr': aggr})
        expected = pyg(edge_index=RANDOM.edge_index, **layer.inputs(RANDOM))
    except (ValueError, TypeError, RuntimeError, AttributeError):
        pytest.skip('PyG fails here')
    fused = layer.parity.fused(**{**copy.deepcopy(layer.options), 'aggr': aggr})
    fused.load_state_dict(pyg.state_dict())
    assert torch.equal(fused(edge_index=RANDOM.edge_index, **layer.inputs(RANDOM)), expected)
    assert 'aggr' in fused.note.reason
    (row,) = pygfuse.report(fused, file=io.StringIO())
    assert row.why_not == fused.note.reason


FALL_BACK = [
    (EDGE, {'nn': torch.nn.Sequential(torch.nn.Linear(2 * FEATURES, 4), torch.nn.LayerNorm(4))}, 'LayerNorm'),
    (table.GMM, {'separate_gaussians': True, 'kernel_size': 13}, 'separate'),
    (GATED, {'act': torch.nn.ELU()}, 'ELU'),
    (FA, {'cached': True}, 'caches'),
    (table.GCN, {'decomposed_layers': 2}, 'decomposed_layers'),
]


@pytest.mark.parametrize(('layer', 'options', 'reason'), FALL_BACK, ids=str)
def test_options_that_fall_back(layer, options, reason):
    pyg, fused = layer.pair(**options)
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    for _ in range(2):
        assert torch.equal(fused(**inputs), pyg(**inputs))
        assert reason in fused.note.reason
    (row,) = pygfuse.report(fused, file=io.StringIO())
    assert row.why_not == fused.note.reason


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if not layer.square], ids=str)
def test_the_reversed_flow_between_different_nodes_falls_back(layer):
    example = GRAPHS['bipartite, more sources']()
    example = Example(example.edge_index.flip(0), 40, 23)
    pyg, fused = layer.pair(flow='target_to_source')
    inputs = {**layer.inputs(example), 'edge_index': example.edge_index}
    try:
        expected = pyg(**inputs)
    except (RuntimeError, IndexError, ValueError) as error:
        with pytest.raises(type(error)):
            fused(**inputs)
    else:
        assert torch.equal(fused(**inputs), expected)
    assert 'flow' in fused.note.reason


@pytest.mark.parametrize('layer', [GATV2, TRANSFORMER, GATED, table.CG], ids=str)
def test_edge_features_that_no_option_announced_fail_as_in_pyg(layer):
    for conv in layer.pair():
        with pytest.raises((AssertionError, RuntimeError)):
            conv(RANDOM.x(FEATURES), RANDOM.edge_index, RANDOM.edge_attr(table.EDGE_DIM))


@pytest.mark.parametrize('layer', [layer for layer in table.EDGES if layer.edge == 'edge_attr'], ids=str)
def test_missing_edge_features(layer):
    if layer is table.GATV2_EDGES:
        pytest.skip('they may be missing')
    with pytest.raises(ValueError, match="'edge_attr'"):
        layer.fused()(RANDOM.x(FEATURES), RANDOM.edge_index)


def maps():
    for layer in LAYERS:
        for name, _ in layer.fused().named_modules():
            if name.startswith('lin') or name.startswith('att') or name in ('nn', 'res', 'root'):
                yield pytest.param(layer, name, id=f'{layer} {name}')


@pytest.mark.parametrize(('layer', 'name'), list(maps()))
def test_hooks_of_the_linear_maps_are_called(layer, name):
    fused = layer.fused()
    called = []
    fused.get_submodule(name).register_forward_hook(lambda *arguments: called.append(1))
    fused(edge_index=RANDOM.edge_index, **layer.inputs(RANDOM))
    assert called


class Doubled(torch.nn.Linear):
    """A class of one's own, as those that add a low-rank map."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize('by_class', [False, True])
@pytest.mark.parametrize(('layer', 'name'), list(maps()))
def test_linear_maps_with_a_forward_of_their_own(layer, name, by_class):
    pyg, fused = layer.pair()
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    before = pyg(**inputs)
    for conv in (pyg, fused):
        module = conv.get_submodule(name)
        if by_class and isinstance(module, (torch.nn.Linear, torch_geometric.nn.Linear)):
            module.__class__ = Doubled
        else:
            forward = module.forward
            module.forward = lambda *given, forward=forward: 2 * forward(*given)
    expected = pyg(**inputs)
    assert not torch.allclose(expected, before)
    torch.testing.assert_close(fused(**inputs), expected)


# Bad input


@of_each_kind
@pytest.mark.parametrize('node', [5, -1, 2**40])
@pytest.mark.parametrize('kind', ['edge_index', 'EdgeIndex'])
def test_an_index_out_of_range(kind, node, layer):
    example = Example(random_edges(5, 5, 12), 5, 5)
    for row in (0, 1):
        edge_index = example.edge_index.clone()
        edge_index[row, 3] = node
        edge_index = EdgeIndex(edge_index) if kind == 'EdgeIndex' else edge_index
        with pytest.raises(ValueError, match=rf'edge_index\[{row}\] holds node {node}'):
            layer.fused()(edge_index=edge_index, **layer.inputs(example))


@of_each_kind
@pytest.mark.parametrize('edge_index', [torch.zeros(3, 4).long(), torch.zeros(2, 4), [[0], [1]], None], ids=str)
def test_what_is_no_adjacency(edge_index, layer):
    with pytest.raises(ValueError, match='edge_index'):
        layer.fused()(edge_index=edge_index, **layer.inputs(SMALL))


# AGNNConv takes any width; the others leave it to the layer inside, as PyG does
ANY_WIDTH = (table.AGNN, table.GIN, table.GINE)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer not in ANY_WIDTH], ids=str)
@pytest.mark.parametrize('features', [FEATURES - 1, 2 * FEATURES])
def test_features_of_a_wrong_width(features, layer):
    with pytest.raises(ValueError, match="'x"):
        layer.fused()(edge_index=SMALL.edge_index, **layer.inputs(SMALL, features=features))


@pytest.mark.parametrize('layer', table.EDGES, ids=str)
@pytest.mark.parametrize('num_edges', [0, 7, 9])
def test_edge_features_of_a_wrong_length(num_edges, layer):
    inputs = layer.inputs(SMALL)
    shape = (num_edges,) if layer.width is None else (num_edges, layer.width)
    inputs[layer.edge] = torch.randn(shape)
    with pytest.raises(ValueError, match=f"'{layer.edge}'"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


@pytest.mark.parametrize('layer', [layer for layer in table.EDGES if layer.width], ids=str)
@pytest.mark.parametrize('change', [-1, 1])
def test_edge_features_of_a_wrong_width(change, layer):
    inputs = layer.inputs(SMALL)
    inputs[layer.edge] = torch.randn(8, layer.width + change)
    with pytest.raises(ValueError, match=f"'{layer.edge}'"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer.takes_size], ids=str)
def test_size_that_contradicts_the_features(layer):
    for size in ((5, 4), (4, 5)):
        with pytest.raises(ValueError, match='size'):
            layer.fused()(edge_index=SMALL.edge_index, size=size, **layer.inputs(SMALL))


@every
def test_tensors_on_different_devices(layer):
    inputs = {**layer.inputs(SMALL), 'edge_index': SMALL.edge_index}
    for name in inputs:
        moved = {**inputs, name: inputs[name].to('meta')}
        with pytest.raises(ValueError, match=name):
            layer.fused()(**moved)


def test_the_sum_of_a_layer_without_bias_may_be_written_to():
    found = []
    for module in (torch_geometric.nn, pygfuse.conv):
        torch.manual_seed(0)
        conv = module.GCNConv(8, 8, bias=False).double()
        x = torch.randn(60, 8, dtype=torch.float64, requires_grad=True)
        conv(x, RANDOM.edge_index).relu_().square().sum().backward()
        found.append((x.grad, conv.lin.weight.grad))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize('aggr', ['add', 'mean', 'max'])
@pytest.mark.filterwarnings('ignore:Initializing zero-element')
def test_a_layer_without_channels(aggr):
    found = []
    for module in (torch_geometric.nn, pygfuse.conv):
        x = torch.randn(60, 8, requires_grad=True)
        conv = module.GCNConv(8, 0, aggr=aggr)
        out = conv(x, RANDOM.edge_index)
        out.sum().backward()
        found.append((out, x.grad))
    assert conv.note.reason is None
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize('name', ['GCNConv', 'GATConv'])
def test_transforms_of_functions_run_the_path_of_pyg(name):
    conv, x = getattr(pygfuse.conv, name)(8, 8), torch.randn(60, 8)
    found = torch.func.grad(lambda x: conv(x, RANDOM.edge_index).square().sum())(x)
    assert conv.note.reason == 'a transform of torch.func'
    x.requires_grad_()
    conv(x, RANDOM.edge_index).square().sum().backward()
    assert conv.note.reason is None
    torch.testing.assert_close(found, x.grad)


@pytest.mark.parametrize('name', ['GCNConv', 'GATConv'])
def test_forward_mode_differentiation_runs_the_path_of_pyg(name):
    conv, x, direction = getattr(pygfuse.conv, name)(8, 8).double(), torch.randn(60, 8).double(), torch.randn(60, 8)
    with forward_ad.dual_level():
        out = conv(forward_ad.make_dual(x, direction.double()), RANDOM.edge_index)
        tangent = forward_ad.unpack_dual(out).tangent
    assert conv.note.reason == 'forward-mode differentiation'
    step = 1e-5 * direction
    torch.testing.assert_close(
        2e-5 * tangent, conv(x + step, RANDOM.edge_index) - conv(x - step, RANDOM.edge_index), rtol=1e-5, atol=1e-12
    )


# the forward of others is several, by what it returns
SCRIPTED = [layer for layer in LAYERS if layer.name not in ('GATv2Conv', 'TransformerConv', 'FAConv')]


@pytest.mark.filterwarnings('ignore:.*torch.jit.script.* is deprecated')
@pytest.mark.parametrize('layer', SCRIPTED, ids=str)
def test_torchscript_compiles_the_forward_of_pyg(layer):
    pyg, fused = layer.pair()
    inputs = layer.inputs(RANDOM)
    arguments = [inputs['x'], RANDOM.edge_index, *([] if layer.edge is None else [inputs[layer.edge]])]
    expected, model = fused(*arguments), torch.nn.ModuleDict({'conv': fused})
    scripted = torch.jit.script(model).conv
    assert scripted.code == torch.jit.script(pyg).code
    torch.testing.assert_close(scripted(*arguments), expected)
    assert model['conv'] is fused  # which goes on as before
    assert torch.equal(fused(*arguments), expected)
    assert type(fused) is layer.parity.fused


@pytest.mark.filterwarnings('ignore:.*torch.jit.script.* is deprecated')
@pytest.mark.parametrize('copied', [copy.deepcopy, lambda conv: pickle.loads(pickle.dumps(conv)), pygfuse.unfuse])
def test_a_layer_that_was_scripted_is_copied_and_unfused(copied):
    conv = SAGE.fused()
    torch.jit.script(torch.nn.ModuleDict({'conv': conv}))
    assert type(copied(conv)) is (torch_geometric.nn.SAGEConv if copied is pygfuse.unfuse else pygfuse.conv.SAGEConv)


@pytest.mark.filterwarnings('ignore:.*torch.jit.script.* is deprecated')
@pytest.mark.parametrize('layer', [FA, TRANSFORMER, table.FA_WEIGHTS], ids=str)
def test_torchscript_compiles_the_forward_of_pyg_with_attention_weights(layer):
    class Net(torch.nn.Module):
        def __init__(self, conv):
            super().__init__()
            self.conv = conv

        def forward(
            self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None
        ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
            return self.conv(x, edge_index, None, return_attention_weights=True)

    class WithFirst(Net):
        def forward(
            self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor | None
        ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
            return self.conv(x, x, edge_index, edge_weight, return_attention_weights=True)

    net = (WithFirst if layer.name == 'FAConv' else Net)(layer.fused())
    inputs = layer.inputs(RANDOM)
    arguments = inputs['x'], RANDOM.edge_index, inputs.get('edge_weight')
    out, (_, alpha) = torch.jit.script(net)(*arguments)
    expected, (_, expected_alpha) = net(*arguments)
    torch.testing.assert_close((out, alpha), (expected, expected_alpha))


def test_torchscript_does_not_replace_a_forward_of_the_users_own():
    class Own(pygfuse.conv.SAGEConv):
        def forward(self, x, edge_index):
            return 2 * super().forward(x, edge_index)

    conv = Own(FEATURES, 3)
    assert conv.__prepare_scriptable__() is conv
    assert type(conv) is Own


@some(LAYERS, fast=[SAGE, table.GCN])
def test_an_export_to_onnx_is_of_the_path_of_pyg(layer, monkeypatch):
    monkeypatch.setattr('torch.onnx.is_in_onnx_export', lambda: True)  # as torch's exporter says while it traces
    inputs = layer.inputs(RANDOM)
    first = [inputs['x']] + ([inputs['x_0']] if layer.name == 'FAConv' else [])
    arguments = (*first, RANDOM.edge_index, *([] if layer.edge is None else [inputs[layer.edge]]))
    conv = layer.fused().eval()
    program = torch.export.export(conv, arguments, strict=False)
    assert not [node for node in program.graph.nodes if 'pygfuse' in str(node.target)]
    monkeypatch.undo()
    torch.testing.assert_close(program.module()(*arguments), conv(*arguments))


@of_each_kind
@pytest.mark.parametrize('dtype', [torch.uint8, torch.int8, torch.int16], ids=str)
def test_narrow_indices(dtype, layer):
    for example in (RANDOM, LOOPS):
        index = example.edge_index
        layer.check(example, edge_index=index.to(dtype), pyg_edge_index=index, narrow=False)


@of_each_kind
def test_the_path_of_pyg_has_right_gradients_with_int32(layer):
    inputs, found = layer.inputs(RANDOM, dtype=torch.float64), []
    pyg, fused = layer.pair(torch.float64)
    fused.register_propagate_forward_hook(lambda module, given, out: None)
    for conv, edge_index in ((pyg, RANDOM.edge_index), (fused, RANDOM.edge_index.int())):
        given = {name: value.detach().clone().requires_grad_() for name, value in inputs.items()}
        conv(edge_index=edge_index, **given).square().sum().backward()
        found.append([value.grad for value in given.values()])
    assert 'hook' in fused.note.reason
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


@of_each_kind
@pytest.mark.parametrize('num_nodes', [0, 1, 3])
@pytest.mark.parametrize('mapping', ['used_once', 'scatter', 'edge', 'vertex'])
def test_graphs_without_edges_in_every_mapping(mapping, num_nodes, layer):
    example = table.square(torch.empty(2, 0, dtype=torch.int64), num_nodes)
    inputs = {name: value.double().requires_grad_() for name, value in layer.inputs(example).items()}
    pyg, fused = layer.pair(torch.float64)
    found = []
    for conv in (pyg, fused):
        with pygfuse.used_once() if mapping == 'used_once' else pygfuse.force_mapping(mapping):
            out = conv(edge_index=example.edge_index.clone(), **inputs)
            given = [*inputs.values(), *(parameter for parameter in conv.parameters() if parameter.requires_grad)]
            gradients = torch.autograd.grad(out.sum(), given, allow_unused=True, materialize_grads=True)
        found.append((out, *gradients))
    assert fused.note.reason is None
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.filterwarnings('ignore:An output with one or more elements')
@pytest.mark.parametrize('num_edges', [0, 1, 2])
@pytest.mark.parametrize('order', [None, 'row', 'col'])
@some(LAYERS, fast=[TRANSFORMER, table.GRAPH])
def test_few_edges_of_an_edge_index_class_on_the_path_of_pyg_of_active_rows(layer, order, num_edges):
    edge_index = EdgeIndex(torch.tensor([[0, 1], [1, 2]])[:, :num_edges], sparse_size=(3, 3), sort_order=order)
    conv, linear, mask = layer.fused(), torch.nn.Linear(FEATURES, FEATURES), torch.tensor([True, False, True])
    conv.register_propagate_forward_hook(lambda *arguments: None)
    inputs = layer.inputs(table.square(edge_index.as_tensor(), 3))
    found = []
    for context in (contextlib.nullcontext(), pygfuse.active(mask)):
        with context:
            out = conv(**{**inputs, 'x': linear(inputs['x']).relu()}, edge_index=edge_index)
        found.append((out[mask], *torch.autograd.grad(out[mask].sum(), linear.parameters())))
    assert conv.note.reason is not None
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize('name', [fused.__name__ for fused in FUSED_CLASSES.values()])
@pytest.mark.parametrize('helper', [cheatsheet.paper_title, cheatsheet.paper_link])
def test_papers_are_cited_as_by_pyg(helper, name, monkeypatch):
    expected = helper(name)
    monkeypatch.setattr(f'torch_geometric.nn.conv.{name}', getattr(pygfuse.conv, name))
    assert helper(name) == expected is not None


NO_FEATURES = [None, 3, (), (None, None), (torch.ones(4, FEATURES),) * 3]


@of_each_kind
@pytest.mark.parametrize('x', NO_FEATURES, ids=['None', 'a number', 'no tensors', 'a pair of None', 'three tensors'])
def test_what_are_no_features(x, layer):
    inputs = {**layer.inputs(SMALL), 'x': x}
    with pytest.raises(ValueError, match=r"Expected 'x(\[0\])?' to be a tensor|does not support bipartite"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


@pytest.mark.parametrize('layer', [layer for layer in LAYERS if not layer.square], ids=str)
def test_features_that_are_no_tensor(layer):
    inputs = layer.inputs(SMALL)
    inputs['x'] = inputs['x'].numpy()
    with pytest.raises(ValueError, match=r"Expected 'x' to be a tensor of shape .*\(got ndarray\)"):
        layer.fused()(edge_index=SMALL.edge_index, **inputs)


def test_a_device_without_kernels_runs_the_path_of_pyg():
    fused = SAGE.fused().to('meta')
    assert fused(RANDOM.x(FEATURES).to('meta'), RANDOM.edge_index.to('meta')).shape == (60, CHANNELS)
    assert fused.note.reason == "the device 'meta' has no fused kernels"


SPARSE_FEATURES = {
    'COO': (table.GCN, GATV2, TRANSFORMER, EDGE, GATED, table.CG, table.GMM),
    'CSR': (table.GCN, GATV2, TRANSFORMER, GATED, table.GMM),
}


@pytest.mark.parametrize('layout', SPARSE_FEATURES)
def test_sparse_features(layout, monkeypatch):
    monkeypatch.setattr('pygfuse.ops.linear.LEAST_BYTES', 0)
    for layer in SPARSE_FEATURES[layout]:
        found = []
        for conv in layer.pair(torch.float64):
            inputs = layer.inputs(RANDOM, dtype=torch.float64)
            x = inputs.pop('x').relu()
            out = conv(x.to_sparse() if layout == 'COO' else x.to_sparse_csr(), RANDOM.edge_index, **inputs)
            given = [parameter for parameter in conv.parameters() if parameter.requires_grad]
            found.append((out, *torch.autograd.grad(out.square().sum(), given)))
        assert conv.note.reason is None
        for got, expected in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(got, expected)
