"""Every convolution gives the numbers of PyG on any graph, adjacency and flow."""

from __future__ import annotations

import pytest
import torch

import pygfuse
from tests.support import cases as table
from tests.support.all_convs import LOOPS, RANDOM, every, of_each_kind, some
from tests.support.cases import (
    EDGE_CONV,
    FA,
    FEATURES,
    GATED,
    GATV2,
    LAYERS,
    SAGE,
    TRANSFORMER,
    TRANSFORMER_EDGES,
    Layer,
)
from tests.support.parity import ADJACENCIES, BIPARTITE, GRAPHS, SPARSE, Example

# layers that add few edges up as they come, and walk sorted ones where there are more
ADDED_AS_THEY_COME = ('GCNConv', 'GINConv', 'GraphConv', 'SAGEConv')

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


@every
@pytest.mark.parametrize('graph', GRAPHS)
def test_graphs(graph, layer):
    if layer.square and graph in BIPARTITE:
        pytest.skip('has no bipartite form')
    if graph == 'bipartite, more targets' and layer is table.GATV2_EDGES:
        pytest.skip('PyG fails here')
    # float32 where sums are short, and where they are long
    layer.check(GRAPHS[graph](), narrow=graph in ('random', 'hub'))


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('layer', [layer for layer in LAYERS if layer.name in ADDED_AS_THEY_COME], ids=str)
def test_few_edges_that_are_walked(graph, layer, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    test_graphs(graph, layer)


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


@every
def test_features_that_are_not_contiguous(layer):
    pyg, fused = layer.pair(torch.float64)
    inputs = {name: value.double().t().contiguous().t() for name, value in layer.inputs(RANDOM).items()}
    torch.testing.assert_close(
        fused(edge_index=RANDOM.edge_index, **inputs), pyg(edge_index=RANDOM.edge_index, **inputs)
    )


@of_each_kind
@pytest.mark.parametrize('dtype', [torch.uint8, torch.int8, torch.int16], ids=str)
def test_narrow_indices(dtype, layer):
    for example in (RANDOM, LOOPS):
        index = example.edge_index
        layer.check(example, edge_index=index.to(dtype), pyg_edge_index=index, narrow=False)


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


SPARSE_FEATURES = {
    'COO': (table.GCN, GATV2, TRANSFORMER, EDGE_CONV, GATED, table.CG, table.GMM),
    'CSR': (table.GCN, GATV2, TRANSFORMER, GATED, table.GMM),
}


@pytest.mark.parametrize('layout', SPARSE_FEATURES)
def test_sparse_features(layout, monkeypatch):
    monkeypatch.setattr('pygfuse.ops.nodes.linear.LEAST_BYTES', 0)
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
