"""PyG's classes without a written form run compiled: the same outputs and gradients."""

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from tests.compiler.cases import CASES, Case
from tests.support import parity
from tests.support.parity import GRAPHS, Parity

# PyG's own layer mixes types there
ONLY_NARROW = ('PANConv',)
RUNNING = [case for case in CASES if case.reason is None]


def _is_nan_at_the_origin() -> bool:
    """Whether the derivative of torch's arc tangent is NaN at the origin, as it is in torch 2.9."""
    x = torch.zeros(1, requires_grad=True)
    return bool(torch.autograd.grad(torch.atan2(x, torch.zeros(1)), x)[0].isnan())


# along self-loops both of its arguments are 0
_NAN_IN_PYG = pytest.mark.xfail(_is_nan_at_the_origin(), reason="NaN in PyG, too, by torch's atan2", strict=True)


def compiled(case: Case, seed: int = 0):
    """PyG's layer and the compiled one with the same parameters."""
    both = Parity(case.plain, lambda **options: pygfuse.compile(case.plain(**options)))
    return both.make(case.options, seed)


def check(case: Case, graph: str) -> None:
    example = GRAPHS[graph]()
    plain, fused = compiled(case)
    arguments = case.arguments(example)
    wide = None if case.name in ONLY_NARROW else copy.deepcopy(plain).double()
    dtype = torch.float32 if wide is None else torch.float64
    reference = parity.results(wide or copy.deepcopy(plain), arguments, dtype, 0)
    if wide is not None:
        parity.assert_close(parity.results(copy.deepcopy(fused).double(), arguments, dtype, 0), reference)
    narrow = parity.results(plain, arguments, torch.float32, 0)
    found = parity.results(fused, arguments, torch.float32, 0)
    assert fused.note.reason is None
    parity.assert_close(found, reference, narrow)


@pytest.mark.parametrize('graph', ['random', 'self-loops', 'isolated nodes'])
@pytest.mark.parametrize(
    'case', [pytest.param(case, marks=[_NAN_IN_PYG] * (case.name == 'PPFConv')) for case in RUNNING], ids=str
)
def test_outputs_and_gradients_are_those_of_pyg(case, graph):
    check(case, graph)


@pytest.mark.parametrize('case', [case for case in CASES if case.reason is not None], ids=str)
def test_what_does_not_run_fused_says_why_and_computes_the_same(case):
    example = GRAPHS['random']()
    plain, fused = compiled(case)
    plain.eval(), fused.eval()
    found, expected = fused(**case.arguments(example)), plain(**case.arguments(example))
    assert fused.note.reason == case.reason
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('targets', [60, 55])
def test_pairs_of_features_where_the_flow_is_reversed(targets):
    """PyG's template gathers the first of a pair whatever the flow, at the other end."""
    example = GRAPHS['random']()
    edge_index = example.edge_index[:, (example.edge_index < targets).all(0)]
    plain = pyg.SAGEConv((8, 5), 4, aggr=['mean', 'max'], project=True, flow='target_to_source')
    fused = pygfuse.compile(copy.deepcopy(plain))
    x = torch.randn(60, 8), torch.randn(targets, 5)
    if targets == 60:
        torch.testing.assert_close(fused(x, edge_index), plain(x, edge_index))
        assert fused.note.reason is None
    else:
        for conv in (plain, fused):
            with pytest.raises(RuntimeError):
                conv(x, edge_index)
        assert 'different sets of nodes' in fused.note.reason


@pytest.mark.parametrize('options', [{}, {'add_self_loops': False}, {'fill_value': 'add'}], ids=str)
def test_gradients_of_what_belongs_to_edges_of_int32(options):
    """torch's are wrong, where PyG's forward computes something of edges."""
    example = GRAPHS['random']()
    plain = pyg.GATConv(8, 4, edge_dim=3, aggr='max', **options).double()
    fused, gradients = pygfuse.compile(copy.deepcopy(plain)), []
    for conv, edge_index in ((plain, example.edge_index), (fused, example.edge_index.int())):
        edge_attr = example.edge_attr(3).double().requires_grad_()
        out = conv(example.x(8).double(), edge_index, edge_attr)
        gradients.append(torch.autograd.grad(out.square().sum(), [edge_attr, *conv.parameters()]))
    assert fused.note.reason is None
    for got, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(got, expected)


def test_layers_without_edges_run_pyg():
    example = GRAPHS['no edges']()
    conv = pygfuse.compile(pyg.TAGConv(8, 4))
    assert conv(example.x(8), example.edge_index).shape == (example.num_targets, 4)
    assert conv.note.reason is None or 'no edges' in conv.note.reason


def test_copies_and_pickles_stay_compiled():
    example = GRAPHS['random']()
    conv = pygfuse.compile(pyg.TAGConv(8, 4))
    out = conv(example.x(8), example.edge_index)
    for again in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert type(again) is type(conv)
        torch.testing.assert_close(again(example.x(8), example.edge_index), out)
        assert again.note.reason is None


def test_fuse_compiles_and_unfuse_undoes_it():
    model = pygfuse.fuse(torch.nn.ModuleList([pyg.TAGConv(8, 4), pyg.GATConv(8, 4)]))
    assert type(model[0]) is not pyg.TAGConv
    assert repr(model[0]) == repr(pyg.TAGConv(8, 4))
    assert [type(conv) for conv in pygfuse.unfuse(model)] == [pyg.TAGConv, pyg.GATConv]
    assert type(pygfuse.fuse(model, compile=False)[0]) is pyg.TAGConv


def test_a_layer_with_an_aggregation_of_its_own_is_compiled():
    assert pygfuse.compile(pyg.SAGEConv(8, 4, aggr='median')).plain is pyg.SAGEConv
    assert not hasattr(pygfuse.compile(pyg.SAGEConv(8, 4)), 'plan_of')


def test_compile_takes_layers_alone():
    with pytest.raises(TypeError, match=r"Expected 'conv' to be a MessagePassing layer, .* \(got Linear\)"):
        pygfuse.compile(torch.nn.Linear(2, 2))
