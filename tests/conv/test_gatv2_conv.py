"""What attention layers have beyond the rest: values of added self-loops, attention weights. GATv1 in parts."""

from __future__ import annotations

import pytest
import torch
import torch_geometric
from torch.torch_version import TorchVersion

from tests.support import cases as table
from tests.support.cases import EDGE_DIM, FEATURES, GATV2, GATV2_EDGES, TRANSFORMER, Layer
from tests.support.parity import ADJACENCIES, GRAPHS

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')

RANDOM = GRAPHS['random']()
LOOPS = GRAPHS['self-loops']()
FILL_VALUES = ['mean', 'add', 'min', 'max', 'mul', 0.5, torch.tensor([0.5, -1.0, 2.0])]
GAT_EDGES = Layer('GATConv', {**table.ATTENTION, 'edge_dim': EDGE_DIM}, 'edge_attr', EDGE_DIM)


def fill_name(value) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
@pytest.mark.parametrize('adjacency', ['edge_index', 'int32', 'EdgeIndex', 'EdgeIndex by row', 'EdgeIndex by column'])
@pytest.mark.parametrize('layer', [GAT_EDGES, GATV2_EDGES], ids=str)
@pytest.mark.parametrize('fill_value', FILL_VALUES, ids=fill_name)
def test_fill_values(fill_value, layer, adjacency, flow):
    layer.check(
        LOOPS,
        options={'fill_value': fill_value, 'flow': flow},
        edge_index=ADJACENCIES[adjacency](LOOPS),
        pyg_edge_index=LOOPS.edge_index if adjacency == 'int32' else None,
        narrow=False,
    )


@pytest.mark.parametrize('layer', [GAT_EDGES, GATV2_EDGES], ids=str)
@pytest.mark.parametrize('fill_value', FILL_VALUES, ids=fill_name)
def test_fill_values_in_inference_mode(fill_value, layer):
    """Where an ``edge_index`` cannot be watched, a graph stands for it."""
    pyg, fused = layer.pair(torch.float64, fill_value=fill_value)
    with torch.inference_mode():
        inputs = {**layer.inputs(LOOPS, dtype=torch.float64), 'edge_index': LOOPS.edge_index.clone()}
        torch.testing.assert_close(fused(**inputs), pyg(**inputs))
    assert fused.note.reason is None


@pytest.mark.parametrize('graph', ['isolated nodes', 'no edges', 'bipartite, more sources'])
@pytest.mark.parametrize('fill_value', ['mean', 'max', 0.5], ids=fill_name)
def test_fill_values_on_other_graphs(fill_value, graph):
    GATV2_EDGES.check(GRAPHS[graph](), options={'fill_value': fill_value}, narrow=False)


@pytest.mark.parametrize('loops', [True, False])
def test_edge_features_of_one_dimension(loops):
    options = {'edge_dim': 1, 'add_self_loops': loops}
    GATV2.check(RANDOM, options=options, edge_attr=RANDOM.edge_attr(), narrow=False)


def test_edge_dim_without_edge_features():
    GATV2.check(RANDOM, options={'edge_dim': EDGE_DIM}, narrow=False)


@pytest.mark.parametrize('adjacency', ['COO', 'CSR', 'SparseTensor'])
def test_edge_features_of_sparse_adjacencies(adjacency, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    edge_index = ADJACENCIES[adjacency](RANDOM)
    num_edges = edge_index.nnz() if adjacency == 'SparseTensor' else edge_index.values().numel()
    inputs = GATV2_EDGES.inputs(RANDOM, num_edges)
    GATV2_EDGES.check(RANDOM, **inputs, edge_index=edge_index, options={'add_self_loops': False}, narrow=False)
    if adjacency == 'SparseTensor':
        with pytest.raises(NotImplementedError, match='edge_attr'):
            GATV2_EDGES.fused()(edge_index=edge_index, **inputs)


@pytest.mark.parametrize('layer', [GATV2_EDGES, table.TRANSFORMER_EDGES], ids=str)
def test_values_of_a_sparse_tensor_are_edge_features(layer, needs_torch_sparse):
    adjacency = ADJACENCIES['SparseTensor'](RANDOM).set_value(RANDOM.edge_attr(EDGE_DIM), layout='coo')
    options = {'add_self_loops': False} if layer is GATV2_EDGES else {}
    inputs = {'x': RANDOM.x(FEATURES), 'edge_attr': None}
    layer.check(RANDOM, **inputs, edge_index=adjacency, options=options, narrow=False)


@pytest.mark.parametrize('adjacency', ['edge_index', 'EdgeIndex', 'COO', 'CSR', 'SparseTensor'])
@pytest.mark.parametrize('layer', [GATV2, TRANSFORMER, table.FA], ids=str)
@pytest.mark.parametrize('weights', [True, False])
def test_attention_weights_are_those_of_pyg(weights, layer, adjacency, request):
    if adjacency == 'SparseTensor':
        request.getfixturevalue('needs_torch_sparse')
    if adjacency in ('COO', 'CSR') and layer is table.FA:
        pytest.skip('PyG fails here')
    pyg, fused = layer.pair()
    edge_index = ADJACENCIES[adjacency](RANDOM)
    arguments = {**layer.inputs(RANDOM), 'edge_index': edge_index, 'return_attention_weights': weights}
    expected, got = pyg(**arguments), fused(**arguments)
    assert (fused.note.reason is None) == (layer is not table.FA or adjacency != 'SparseTensor')
    any_bool_is_yes = layer is not GATV2 or TorchVersion(torch_geometric.__version__) < '2.8'
    assert isinstance(expected, tuple) == (weights or any_bool_is_yes)
    if not isinstance(expected, tuple):
        torch.testing.assert_close(got, expected)
        return
    torch.testing.assert_close(got[0], expected[0])
    assert type(got[1]) is type(expected[1])
    if isinstance(got[1], tuple):
        (edges, alpha), (pyg_edges, pyg_alpha) = got[1], expected[1]
        assert type(edges) is type(pyg_edges)
        if adjacency in ('edge_index', 'EdgeIndex'):
            assert torch.equal(edges, pyg_edges)
        else:
            torch.testing.assert_close(edges, pyg_edges)
            assert edges is edge_index or layer is GATV2
        torch.testing.assert_close(alpha, pyg_alpha)
    else:
        torch.testing.assert_close(got[1].to_dense(), expected[1].to_dense())


@pytest.mark.parametrize('layer', [GATV2_EDGES, table.TRANSFORMER_EDGES, table.FA], ids=str)
def test_attention_weights_have_gradients(layer):
    pyg, fused = (conv.double() for conv in layer.pair())
    inputs = {name: value.double() for name, value in layer.inputs(RANDOM).items()}
    gradients = []
    for conv in (pyg, fused):
        x = inputs['x'].clone().requires_grad_()
        out, (_, alpha) = conv(**{**inputs, 'x': x}, edge_index=RANDOM.edge_index, return_attention_weights=True)
        scale = torch.linspace(0, 1, alpha.numel(), dtype=alpha.dtype).view_as(alpha)
        gradients.append(torch.autograd.grad(out.square().sum() + (alpha * scale).sum(), [x, *conv.parameters()]))
    assert fused.note.reason is None
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected)


def test_attention_weights_are_returned_after_dropout_as_by_pyg():
    conv, seed = GATV2.fused(dropout=0.5), torch.get_rng_state()
    inputs = GATV2.inputs(RANDOM)
    out, (_, dropped) = conv(**inputs, edge_index=RANDOM.edge_index, return_attention_weights=True)
    torch.set_rng_state(seed)
    torch.testing.assert_close(conv(**inputs, edge_index=RANDOM.edge_index), out)
    whole = conv.eval()(**inputs, edge_index=RANDOM.edge_index, return_attention_weights=True)[1][1]
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])
