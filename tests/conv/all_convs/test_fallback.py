"""What runs the path of PyG, and why."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
import torch_geometric.nn
from torch_geometric import EdgeIndex

import pygfuse
from tests.support import cases as table
from tests.support.all_convs import RANDOM, every, of_each_kind, some
from tests.support.cases import CHANNELS, EDGE_CONV, FA, FEATURES, GATED, GATV2, LAYERS, SAGE, TRANSFORMER
from tests.support.parity import GRAPHS, Example

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


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
    (row,) = pygfuse.report(fused)
    assert row.why_not == fused.note.reason


FALL_BACK = [
    (EDGE_CONV, {'nn': torch.nn.Sequential(torch.nn.Linear(2 * FEATURES, 4), torch.nn.LayerNorm(4))}, 'LayerNorm'),
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
    (row,) = pygfuse.report(fused)
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


def test_a_device_without_kernels_runs_the_path_of_pyg():
    fused = SAGE.fused().to('meta')
    assert fused(RANDOM.x(FEATURES).to('meta'), RANDOM.edge_index.to('meta')).shape == (60, CHANNELS)
    assert fused.note.reason == "the device 'meta' has no fused kernels"


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
