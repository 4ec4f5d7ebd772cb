"""Every convolution compiled, exported, scripted and transformed by torch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch_geometric.nn
from torch.autograd import forward_ad

import pygfuse
from tests.support import cases as table
from tests.support.all_convs import LOOPS, RANDOM, every, some
from tests.support.cases import FA, FEATURES, GRAPH, LAYERS, SAGE, TRANSFORMER, Layer
from tests.support.parity import ADJACENCIES
from tests.support.torchscript import HAS_TORCHSCRIPT

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


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


def test_compiled_with_weights_of_self_loops():
    """Nodes that have one keep its weight; the graph has no shape that depends on how many these are."""
    torch._dynamo.reset()
    example, conv = LOOPS, table.GCN.fused().double()
    x, weights = example.x(FEATURES).double(), example.edge_attr().abs().double().requires_grad_()
    compiled = torch.compile(conv, fullgraph=True, backend='aot_eager')
    found, expected = (
        (out, *torch.autograd.grad(out.square().sum(), weights))
        for out in (layer(x, example.edge_index, weights) for layer in (compiled, conv))
    )
    torch.testing.assert_close(found, expected)


def test_compiled_over_a_matrix_in_inference_mode():
    """Values that are views of the matrix would be more than the compiler of torch takes."""
    torch._dynamo.reset()
    conv, matrix = GRAPH.fused().double(), ADJACENCIES['COO'](RANDOM).double()
    x = RANDOM.x(FEATURES).double()
    with torch.inference_mode():
        torch.testing.assert_close(torch.compile(conv, backend='aot_eager')(x, matrix), conv(x, matrix))


@pytest.mark.parametrize('add_self_loops', [False, True])
@pytest.mark.parametrize('name', ['EdgeIndex by row', 'EdgeIndex by column'])
def test_compiled_over_an_edge_index_that_knows_its_order(name, add_self_loops):
    """Its edges are known by a token, which has no row for each of them."""
    torch._dynamo.reset()
    conv = table.GCN.fused(add_self_loops=add_self_loops).double()
    x, edge_index = RANDOM.x(FEATURES).double(), ADJACENCIES[name](RANDOM)
    compiled = torch.compile(conv, backend='aot_eager')
    torch.testing.assert_close(compiled(x, edge_index), conv(x, edge_index))


@every
def test_exported(layer):
    _, fused = layer.pair()
    inputs = {**layer.inputs(RANDOM), 'edge_index': RANDOM.edge_index}
    program = torch.export.export(fused, (), inputs)
    inputs['edge_index'] = RANDOM.edge_index.flip(1)
    # few edges may be taken by other kernels than those of the operator
    torch.testing.assert_close(program.module()(**inputs), fused(**inputs))
    assert any('pygfuse' in str(node.target) for node in program.graph.nodes)


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


@HAS_TORCHSCRIPT
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


@HAS_TORCHSCRIPT
@pytest.mark.filterwarnings('ignore:.*torch.jit.script.* is deprecated')
@pytest.mark.parametrize('copied', [copy.deepcopy, lambda conv: pickle.loads(pickle.dumps(conv)), pygfuse.unfuse])
def test_a_layer_that_was_scripted_is_copied_and_unfused(copied):
    conv = SAGE.fused()
    torch.jit.script(torch.nn.ModuleDict({'conv': conv}))
    assert type(copied(conv)) is (torch_geometric.nn.SAGEConv if copied is pygfuse.unfuse else pygfuse.conv.SAGEConv)


@HAS_TORCHSCRIPT
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
