"""PyG's MetaLayer, whose models are a user's own: the same outputs and gradients, fused or not."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, LayerNorm, Linear, Module, ReLU, Sequential, SiLU
from torch_geometric.utils import scatter

import pygfuse
from pygfuse.conv import MetaLayer, meta_layer
from pygfuse.mapping import few_edges
from pygfuse.memory import saved_bytes
from tests.support import parity
from tests.support.parity import GRAPHS, random_edges

NODES, EDGES, GLOBALS, GRAPHS_OF_A_BATCH = 5, 4, 3, 2


class EdgeModel(Module):
    """That of PyG's documentation."""

    def __init__(self):
        super().__init__()
        self.edge_mlp = Sequential(Linear(2 * NODES + EDGES + GLOBALS, 7), ReLU(), Linear(7, EDGES))

    def forward(self, src, dst, edge_attr, u, batch):
        return self.edge_mlp(torch.cat([src, dst, edge_attr, u[batch]], 1))


class NodeModel(Module):
    """That of PyG's documentation."""

    def __init__(self, reduce='mean'):
        super().__init__()
        self.reduce = reduce
        self.node_mlp_1 = Sequential(Linear(NODES + EDGES, 6), ReLU(), Linear(6, 6))
        self.node_mlp_2 = Sequential(Linear(NODES + 6 + GLOBALS, 7), ReLU(), Linear(7, NODES))

    def forward(self, x, edge_index, edge_attr, u, batch):
        row, col = edge_index
        out = torch.cat([x[row], edge_attr], dim=1)
        out = self.node_mlp_1(out)
        out = scatter(out, col, dim=0, dim_size=x.size(0), reduce=self.reduce)
        out = torch.cat([x, out, u[batch]], dim=1)
        return self.node_mlp_2(out)


class GlobalModel(Module):
    """That of PyG's documentation."""

    def __init__(self):
        super().__init__()
        self.global_mlp = Sequential(Linear(GLOBALS + NODES, 7), ReLU(), Linear(7, GLOBALS))

    def forward(self, x, edge_index, edge_attr, u, batch):
        return self.global_mlp(torch.cat([u, scatter(x, batch, dim=0, reduce='mean')], dim=1))


class Simulator(Module):
    """An edge model of a simulator: a layer normalisation, a residual, no graphs."""

    def __init__(self):
        super().__init__()
        self.mlp = Sequential(Linear(2 * NODES + EDGES, 7), SiLU(), Linear(7, EDGES), LayerNorm(EDGES))

    def forward(self, src, dst, edge_attr, u, batch):
        return edge_attr + self.mlp(torch.cat([src, dst, edge_attr], dim=-1))


class Sum(Module):
    """A node model that sums the new features of edges."""

    def __init__(self):
        super().__init__()
        self.mlp = Sequential(Linear(NODES + EDGES, 7), SiLU(), Linear(7, NODES))

    def forward(self, x, edge_index, edge_attr, u, batch):
        out = scatter(edge_attr, edge_index[1], 0, x.shape[0], reduce='sum')
        return x + self.mlp(torch.cat([x, out], dim=-1))


class ToSources(Sum):
    """Of edges that begin at a node ("MEGNet"), and of what their other ends have."""

    def forward(self, x, edge_index, edge_attr, u, batch):
        row, col = edge_index[0], edge_index[1]
        edge_attr = edge_attr * x[col].mean(dim=-1, keepdim=True)
        return self.mlp(torch.cat([x, scatter(edge_attr, row, 0, x.shape[0], reduce='mean')], dim=-1))


class Mapped(Sum):
    """Sources are mapped before they come to the edges; a maximum is taken."""

    def __init__(self):
        super().__init__()
        self.lin, self.nn = Linear(NODES, 6), Sequential(Linear(6 + EDGES, 6), SiLU(), Linear(6, EDGES))

    def forward(self, x, edge_index, edge_attr, u, batch):
        row, col = edge_index[0], edge_index[1]
        messages = self.nn(torch.cat([self.lin(x).tanh()[row], edge_attr], dim=-1))
        out = scatter(messages, col, 0, x.shape[0], reduce='max')
        return self.mlp(torch.cat([x, out], dim=-1))


class Directions(Sum):
    """Of all nodes, also of those without edges."""

    def forward(self, x, edge_index, edge_attr, u, batch):
        x = x / x.norm(dim=-1, keepdim=True)
        return x + scatter(x[edge_index[0]], edge_index[1], 0, x.size(0), reduce='sum')


def given(example, with_graphs=True) -> dict:
    nodes = example.num_sources
    graphs = {
        'u': torch.randn(GRAPHS_OF_A_BATCH, GLOBALS, generator=torch.Generator().manual_seed(4)),
        'batch': torch.arange(nodes) * GRAPHS_OF_A_BATCH // nodes,
    }
    found = {'x': example.x(NODES), 'edge_index': example.edge_index, 'edge_attr': example.edge_attr(EDGES)}
    return found | (graphs if with_graphs else {})


LAYERS = {
    "that of PyG's documentation": (lambda: pyg.MetaLayer(EdgeModel(), NodeModel(), GlobalModel()), True),
    'sums of messages': (lambda: pyg.MetaLayer(None, NodeModel('sum'), None), True),
    'a simulator': (lambda: pyg.MetaLayer(Simulator(), Sum()), False),
    'means to sources': (lambda: pyg.MetaLayer(Simulator(), ToSources()), False),
    'edges alone': (lambda: pyg.MetaLayer(Simulator()), False),
    'rows of length one': (lambda: pyg.MetaLayer(None, Directions()), False),
    'maxima of mapped sources': (lambda: pyg.MetaLayer(Simulator(), Mapped()), False),
}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges'])
@pytest.mark.parametrize('name', LAYERS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    torch.manual_seed(0)
    make, with_graphs = LAYERS[name]
    layer, arguments = make(), given(GRAPHS[graph](), with_graphs)
    reference = parity.results(copy.deepcopy(layer).double(), arguments, torch.float64, 0)
    plain = parity.results(copy.deepcopy(layer), arguments, torch.float32, 0)
    fused = pygfuse.fuse(layer)
    assert type(fused) is MetaLayer
    wide = copy.deepcopy(fused).double()
    parity.assert_close(parity.results(wide, arguments, torch.float64, 0), reference)
    parity.assert_close(parity.results(fused, arguments, torch.float32, 0), reference, plain)
    assert fused.note.reason is None
    assert wide.note.reason is None


class Processor(Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([pyg.MetaLayer(Simulator(), Sum()) for _ in range(2)])

    def forward(self, x, edge_index, edge_attr):
        for block in self.blocks:
            x, edge_attr, _ = block(x, edge_index, edge_attr)
        return x, edge_attr


def test_layers_of_a_module_that_is_compiled_whole():
    torch.manual_seed(0)
    module, arguments = Processor(), given(GRAPHS['random'](), False)
    compiled = pygfuse.compile(pygfuse.fuse(copy.deepcopy(module)))
    assert type(compiled.blocks[0]) is MetaLayer
    torch.testing.assert_close(compiled(**arguments), module(**arguments), rtol=1e-4, atol=1e-4)
    assert compiled.note.reason is None


def test_models_run_on_chunks_of_edges():
    layer = pygfuse.compile(pyg.MetaLayer(Simulator(), NodeModel('max')))
    layer(**given(GRAPHS['random']()))
    plans = [plan for known in layer._plans.values() for pairs in known.values() for _, plan in pairs]
    titles = [walk.title for plan in plans for walk in plan.walks.values()]
    assert titles == ['network on chunks of edges: values of edges', 'network on chunks of edges: max']


@pytest.mark.parametrize('with_nodes', [False, True])
def test_saved_bytes_do_not_grow_with_edges(with_nodes):
    torch.manual_seed(0)
    layer, x = pygfuse.fuse(pyg.MetaLayer(Simulator(), Sum() if with_nodes else None)), torch.randn(60, NODES)
    x.requires_grad_()

    def saved(num_edges: int) -> int:
        edge_attr, edge_index = torch.randn(num_edges, EDGES), random_edges(60, 60, num_edges)
        # the graph's own rows are made by the first call
        layer(x, edge_index, edge_attr)
        return saved_bytes(lambda: layer(x, edge_index, edge_attr), exclude=[x, edge_attr, edge_index])

    # the new features of edges are what their sum is made of
    assert saved(4000) - saved(2000) <= (2000 * EDGES * 4 if with_nodes else 0)


class Reads(Sum):
    def forward(self, x, edge_index, edge_attr, u, batch):
        return super().forward(x, edge_index.flip(0), edge_attr, u, batch)


class Roots(Sum):
    def forward(self, x, edge_index, edge_attr, u, batch):
        x_j = x[edge_index[0]]
        return x + scatter(x_j / x_j.norm(dim=-1, keepdim=True), edge_index[1], 0, x.size(0), reduce='sum')


REFUSED = {
    Reads: 'node_model: it reads the edges themselves (flip)',
    Roots: 'node_model: an operator of nodes whose derivative may not be finite',
}


@pytest.mark.parametrize('kind', REFUSED, ids=lambda kind: kind.__name__)
def test_what_has_no_fused_form_says_why(kind):
    layer, reason, arguments = pyg.MetaLayer(None, kind()), REFUSED[kind], given(GRAPHS['random'](), False)
    expected = layer(**arguments)
    fused = pygfuse.fuse(copy.deepcopy(layer))
    torch.testing.assert_close(fused(**arguments), expected)
    assert fused.note.reason == reason
    (row,) = pygfuse.report(fused)
    assert row.why_not == reason


def test_one_model_runs_fused_beside_one_that_does_not():
    torch.manual_seed(0)
    plain, arguments = pyg.MetaLayer(Simulator(), Reads()), given(GRAPHS['random'](), False)
    fused = pygfuse.fuse(copy.deepcopy(plain))
    torch.testing.assert_close(fused(**arguments), plain(**arguments))
    assert fused.note.reason == 'node_model: it reads the edges themselves (flip)'
    assert list(fused._plans) == ['edge_model', 'node_model']


@pytest.mark.parametrize(
    'change',
    [
        lambda layer: setattr(layer, 'edge_model', Simulator()),
        lambda layer: setattr(layer.edge_model.mlp, '1', ReLU()),
        lambda layer: layer.edge_model.register_forward_hook(lambda module, args, out: out + 1),
        lambda layer: layer.edge_model.mlp[0].weight.data.add_(1.0),
    ],
)
def test_what_a_model_read_is_read_again(change):
    torch.manual_seed(0)
    fused, arguments = pygfuse.fuse(pyg.MetaLayer(Simulator(), Sum())), given(GRAPHS['random'](), False)
    fused(**arguments)
    change(fused)
    found = fused(**arguments)
    torch.testing.assert_close(found, pygfuse.unfuse(copy.deepcopy(fused))(**arguments))


def test_no_edges_and_other_arguments():
    plain, example = pyg.MetaLayer(Simulator(), Sum()), GRAPHS['no edges']()
    fused = pygfuse.fuse(copy.deepcopy(plain))
    torch.testing.assert_close(fused(**given(example, False)), plain(**given(example, False)))
    assert fused.note.reason == 'edge_model: there are no edges; node_model: there are no edges'
    arguments = given(GRAPHS['random'](), False)
    with pytest.raises(ValueError, match="Expected 'edge_attr' to have a row for each of"):
        fused(**arguments | {'edge_attr': arguments['edge_attr'][:-1]})


def test_copies_pickles_and_the_way_back():
    torch.manual_seed(0)
    fused, arguments = pygfuse.fuse(pyg.MetaLayer(Simulator(), Sum())), given(GRAPHS['random'](), False)
    (row,) = pygfuse.report(fused)
    assert row.why_not == 'to be seen at its first call'
    expected = fused(**arguments)
    for other in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert type(other) is MetaLayer
        torch.testing.assert_close(other(**arguments), expected)
    plain = pygfuse.unfuse(fused)
    assert type(plain) is pyg.MetaLayer
    torch.testing.assert_close(plain(**arguments), expected)
    (row,) = pygfuse.report(plain)
    assert row.why_not == 'call pygfuse.fuse(model)'


def test_gradients_of_gradients():
    torch.manual_seed(0)
    layer, edge_index = pygfuse.fuse(pyg.MetaLayer(Simulator(), Sum())).double(), torch.tensor([[0, 1, 3], [1, 2, 2]])
    operands = [torch.randn(4, NODES), torch.randn(3, EDGES)]
    operands = [operand.double().requires_grad_() for operand in operands]
    assert torch.autograd.gradgradcheck(lambda x, e: layer(x, edge_index, e)[:2], operands)


@pytest.mark.parametrize('name', LAYERS)
def test_within_torch_compile(name):
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, with_graphs = LAYERS[name]
    layer, arguments = make().double(), given(GRAPHS['random'](), with_graphs)
    reference = parity.results(copy.deepcopy(layer), arguments, torch.float64, 0)
    fused = pygfuse.fuse(layer)
    traced = torch.compile(fused, backend='aot_eager', fullgraph=True)
    found = parity.results(traced, arguments, torch.float64, 0)
    parity.assert_close({key.replace('_orig_mod.', ''): value for key, value in found.items()}, reference)
    takes_maximum = name == 'maxima of mapped sources'
    assert (fused.note.reason is None) == (not takes_maximum)


FEW = 'so few edges that a row for each takes less'


def test_few_edges_run_the_own_code(monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_A_MODULE', 200)
    torch.manual_seed(0)
    plain = pyg.MetaLayer(Simulator(), Sum())
    fused = pygfuse.fuse(copy.deepcopy(plain))
    x, edge_attr = torch.randn(40, NODES), torch.randn(300, EDGES)
    edge_index = torch.randint(40, (2, 300))
    for count, reason in ((150, f'edge_model: {FEW}; node_model: {FEW}'), (300, None), (150, 'again')):
        call = x, edge_index[:, :count], edge_attr[:count]
        for ours, theirs in zip(fused(*call)[:2], plain(*call)[:2], strict=True):
            torch.testing.assert_close(ours, theirs)
        assert reason == 'again' or fused.note.reason == reason
    fused.edge_model, looks, original = Simulator(), [], meta_layer._call_of
    monkeypatch.setattr(meta_layer, '_call_of', lambda *given: looks.append(given) or original(*given))
    for _ in range(2):
        fused(x, edge_index[:, :150], edge_attr[:150])
    # nobody has looked at the new model, and at the other one somebody has
    assert len(looks) == 1
    assert copy.deepcopy(fused)._few is None


def test_normalisations_in_a_row_take_more_edges(monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_NORMALISED', 100)
    model = Simulator()
    model.mlp = Sequential(
        Linear(2 * NODES + EDGES, 7), BatchNorm1d(7), SiLU(), Linear(7, 7), BatchNorm1d(7), Linear(7, EDGES)
    )
    fused = pygfuse.fuse(pyg.MetaLayer(model))
    for count, reason in ((150, f'edge_model: {FEW}'), (250, None)):
        fused(torch.randn(40, NODES), torch.randint(40, (2, count)), torch.randn(count, EDGES))
        assert fused.note.reason == reason
