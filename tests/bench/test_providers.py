"""The libraries that are compared: each computes what PyG's layer does, and says what is missing."""

import importlib
import sys
import types

import pytest
import torch
from torch_geometric.utils import softmax

from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import Training, layers, models
from pygfuse.bench.providers import PROVIDERS, Problem, Provider
from pygfuse.bench.providers.cudnn import LAYERS as CUDNN_LAYERS
from pygfuse.bench.providers.provider import is_there
from pygfuse.bench.providers.turbo_gnn import LAYERS as TURBO_LAYERS

HEADS, CHANNELS, FEATURES = 2, 4, 6


def problem_of(name: str) -> Problem:
    torch.manual_seed(0)
    widths = HEADS, CHANNELS, FEATURES
    layer = {**layers(*widths), **models(*widths)}[name]
    training = Training(layer, *power_law(20, 100))
    return Problem(name, layer, layer.plain(), training, HEADS, CHANNELS)


def assert_computes(provider: Provider, problem: Problem) -> None:
    """Whether a side has PyG's output, and its gradient of the input."""
    side, found = provider.side(problem), []
    for forward in (side.forward, lambda: problem.training.forward(problem.plain)):
        problem.training.x.grad = None
        out = forward()
        out.square().sum().backward()
        found.append((out.detach(), problem.training.x.grad))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    assert len([*side.module.parameters()]) == len([*problem.plain.parameters()])


@pytest.mark.parametrize('name', ['GATConv', 'SAGEConv max', 'GMMConv', 'GCN', 'GraphSAGE', 'GIN', 'GAT'])
def test_pygfuse(name):
    assert_computes(PROVIDERS['pygfuse'], problem_of(name))


@pytest.mark.parametrize('name', ['GATConv', 'GCNConv', 'SAGEConv', 'GIN'])
def test_pyg_with_a_sparse_tensor(needs_torch_sparse, name):
    assert_computes(PROVIDERS['PyG, SparseTensor'], problem_of(name))


def test_a_sparse_tensor_holds_no_features_of_edges(needs_torch_sparse):
    assert PROVIDERS['PyG, SparseTensor'].side(problem_of('GMMConv')) is None


@pytest.mark.slow
def test_pyg_under_torch_compile():
    assert_computes(PROVIDERS['PyG compiled'], problem_of('GCNConv'))


class Csc:
    """cuDNN's graph: a row's sources side by side."""

    def __init__(self, offsets, indices, num_src_nodes):
        self.targets = torch.arange(len(offsets) - 1).repeat_interleave(offsets.diff().long())
        self.sources, self.count = indices.long(), num_src_nodes

    def reduce(self, rows, aggr):
        """Rows of edges by target."""
        index = self.targets.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
        how = {'sum': 'sum', 'mean': 'mean', 'max': 'amax'}[aggr]
        return rows.new_zeros(self.count, *rows.shape[1:]).scatter_reduce(0, index, rows, how, include_self=False)

    def attend(self, scores, rows):
        alpha = softmax(torch.nn.functional.leaky_relu(scores, 0.2), self.targets, num_nodes=self.count)
        return self.reduce(alpha.unsqueeze(-1) * rows, 'sum')


def fake_cudnn() -> types.ModuleType:
    """cuDNN's operators, as its documentation has them, on a CPU."""
    module = types.ModuleType('cudnn.gnn')

    def agg_simple(graph, *, node_features, aggr):
        return graph.reduce(node_features[graph.sources], aggr)

    def mha_gat(graph, features, attn_weights, *, num_heads):
        rows = features.view(graph.count, num_heads, -1)
        source, target = attn_weights.view(2, num_heads, -1)
        scores = (rows * source).sum(-1)[graph.sources] + (rows * target).sum(-1)[graph.targets]
        return graph.attend(scores, rows[graph.sources]).flatten(1)

    def mha_gat_v2(graph, features, attn_weights, *, num_heads):
        sources, targets = (rows.view(graph.count, num_heads, -1) for rows in features)
        edges = torch.nn.functional.leaky_relu(sources[graph.sources] + targets[graph.targets], 0.2)
        scores = (edges * attn_weights.view(num_heads, -1)).sum(-1)
        alpha = softmax(scores, graph.targets, num_nodes=graph.count)
        return graph.reduce(alpha.unsqueeze(-1) * sources[graph.sources], 'sum').flatten(1)

    module.CscGraph, module.agg_simple, module.mha_gat, module.mha_gat_v2 = Csc, agg_simple, mha_gat, mha_gat_v2
    return module


@pytest.mark.parametrize('name', CUDNN_LAYERS)
def test_cudnn_between_linear_maps(monkeypatch, name):
    monkeypatch.setitem(sys.modules, 'cudnn.gnn', fake_cudnn())
    assert_computes(PROVIDERS['cuDNN'], problem_of(name))


class Adjacency:
    """turbo-gnn's graph."""

    @classmethod
    def from_edge_list(cls, edge_index, num_nodes):
        made = cls()
        made.sources, made.targets, made.count = *edge_index, num_nodes
        return made

    def to(self, device):
        return self

    def attend(self, scores, rows):
        alpha = softmax(scores, self.targets, num_nodes=self.count)
        return rows.new_zeros(self.count, *rows.shape[1:]).index_add(0, self.targets, alpha.unsqueeze(-1) * rows)


def fake_turbo_gnn() -> types.ModuleType:
    """turbo-gnn's aggregations, as `benchmarks/gpu.py` calls them, on a CPU."""
    module = types.ModuleType('turbo_gnn')

    def gatv2_aggr(graph, x, *, x_neighbors, attention_weights, negative_slope, autotune):
        edges = torch.nn.functional.leaky_relu(x_neighbors[graph.sources] + x[graph.targets], negative_slope)
        return graph.attend((edges * attention_weights).sum(-1), x_neighbors[graph.sources])

    def graph_transformer_aggr(graph, x, *, Q, K, V, scale, autotune):
        return graph.attend((Q[graph.targets] * K[graph.sources]).sum(-1) * scale, V[graph.sources])

    module.AdjacencyForwardBackwardWithNodeBuckets = Adjacency
    module.gatv2_aggr, module.graph_transformer_aggr = gatv2_aggr, graph_transformer_aggr
    return module


@pytest.mark.parametrize('name', TURBO_LAYERS)
def test_turbo_gnn_between_linear_maps(monkeypatch, name):
    monkeypatch.setitem(sys.modules, 'turbo_gnn', fake_turbo_gnn())
    assert_computes(PROVIDERS['turbo-gnn'], problem_of(name))


@pytest.mark.parametrize(('provider', 'name'), [('cuDNN', 'GMMConv'), ('turbo-gnn', 'GCNConv')])
def test_what_a_library_has_not(provider, name):
    assert PROVIDERS[provider].side(problem_of(name)) is None


def test_a_folder_of_its_name_is_no_library(monkeypatch, tmp_path):
    (tmp_path / 'some_library').mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_there('some_library')
    (tmp_path / 'some_library' / '__init__.py').touch()
    importlib.invalidate_caches()
    assert is_there('some_library')


def test_what_is_missing_is_said(monkeypatch):
    cpu, gpu = torch.device('cpu'), torch.device('cuda')
    for module in ('dgl', 'cudnn.gnn', 'turbo_gnn'):
        monkeypatch.setitem(sys.modules, module, None)
    assert PROVIDERS['DGL'].why_not(cpu).startswith('needs dgl (pip install packaging dgl==')
    assert PROVIDERS['cuDNN'].why_not(cpu) == 'runs on cuda alone'
    assert PROVIDERS['cuDNN'].why_not(gpu) == 'needs cudnn.gnn (pip install nvidia-cudnn-frontend)'
    assert PROVIDERS['turbo-gnn'].why_not(gpu) == 'needs turbo_gnn (pip install turbo-gnn)'
    assert PROVIDERS['PyG'].why_not(cpu) is None
