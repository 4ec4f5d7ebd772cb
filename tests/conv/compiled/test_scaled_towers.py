"""PNA's towers: what is scaled by degrees is what the first maps give, not what they are given."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.explain import Explainer, GNNExplainer

import pygfuse
from tests.support.parity import GRAPHS, assert_close, results

SCALERS = ['identity', 'amplification', 'attenuation', 'linear', 'inverse_linear']
DEGREES = torch.tensor([3, 5, 9, 4, 1])
WIDE = {'aggregators': ['mean', 'min', 'max', 'std'], 'scalers': SCALERS[:3]}
OPTIONS = {
    'towers': {'towers': 2, 'edge_dim': 3},
    'towers of their own features': {'towers': 4, 'divide_input': True},
    'one tower': {'aggregators': ['sum'], 'scalers': SCALERS},
    'more layers': {'towers': 2, 'pre_layers': 2, 'post_layers': 3, 'act': 'tanh'},
    'trained norms': {'train_norm': True, 'towers': 2},
    'one scaler': {'scalers': ['amplification']},
    'against the edges': {'towers': 2, 'flow': 'target_to_source'},
}


def made(name: str, **options):
    torch.manual_seed(0)
    plain = pyg.PNAConv(8, 8, deg=DEGREES, **{**WIDE, **OPTIONS[name], **options})
    return plain, pygfuse.fuse(copy.deepcopy(plain))


def given_to(plain, graph: str = 'random'):
    example = GRAPHS[graph]()
    given = {'x': example.x(8), 'edge_index': example.edge_index}
    if plain.edge_dim is not None:
        given['edge_attr'] = example.edge_attr(plain.edge_dim)
    return given


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'no edges', 'repeated edges', 'one node with a loop'])
@pytest.mark.parametrize('name', OPTIONS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    plain, conv = made(name)
    given = given_to(plain, graph)
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    assert_close(results(copy.deepcopy(conv).double(), given, torch.float64, 0), reference)
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))


@pytest.mark.usefixtures('by_pyg')
@pytest.mark.parametrize('num_edges', [50, 400, 5000])
def test_few_edges_as_users_have_them(num_edges):
    plain, conv = made('towers')
    torch.manual_seed(1)
    given = {'x': torch.randn(30, 8), 'edge_index': torch.randint(30, (2, num_edges))}
    given['edge_attr'] = torch.randn(num_edges, 3)
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))


def test_derivatives_are_right_twice():
    _, conv = made('trained norms', aggregators=['mean', 'sum'])
    conv.double()
    given = given_to(conv, 'isolated nodes')
    x = given['x'].double().requires_grad_()
    parameters = [conv.aggr_module.avg_deg_log, conv.post_nns[1][0].weight]
    assert torch.autograd.gradcheck(lambda x, *_: conv(x, given['edge_index']), (x, *parameters))
    assert torch.autograd.gradgradcheck(lambda x: conv(x, given['edge_index']), (x,))


def test_nothing_is_saved_that_is_as_wide_as_what_pyg_scales():
    plain, conv = made('towers', edge_dim=None)
    given = given_to(plain)
    widest = {}
    for side, layer in {'PyG': plain, 'pygfuse': conv}.items():
        shapes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=shapes: s.append(t) or t, lambda t: t):
            layer(**given)
        nodes = len(given['x'])
        widest[side] = max(tensor[0].numel() for tensor in shapes if tensor.dim() > 1 and tensor.shape[0] == nodes)
    num_scaled = len(WIDE['aggregators']) * len(WIDE['scalers']) * 8
    assert widest['PyG'] >= num_scaled
    assert widest['pygfuse'] < num_scaled


def _called(module) -> list:
    calls = []
    module.register_forward_hook(lambda module, args, out: calls.append(args[0].shape))
    return calls


@pytest.mark.parametrize('where', ['the scaler', 'a tower', 'the first map of a tower', 'what aggregates'])
def test_who_watches_sees_what_pyg_shows(where):
    plain, conv = made('towers')
    seen = []
    for layer in (plain, conv):
        layer(**given_to(plain))  # what was captured before must not be run
        modules = {
            'the scaler': layer.aggr_module,
            'a tower': layer.post_nns[1],
            'the first map of a tower': layer.post_nns[0][0],
            'what aggregates': layer.aggr_module.aggr,
        }
        seen.append(_called(modules[where]))
        out = layer(**given_to(plain))
        seen.append(out)
    assert len(seen[0]) == 1
    assert seen[0] == seen[2]
    torch.testing.assert_close(seen[3], seen[1])


def test_a_hook_that_goes_leaves_the_layer_fast():
    plain, conv = made('towers')
    given = given_to(plain)
    before = conv(**given)
    handle = conv.aggr_module.register_forward_hook(lambda module, args, out: 2 * out)
    assert not torch.allclose(conv(**given), before)
    handle.remove()
    assert torch.equal(conv(**given), before)


@pytest.mark.parametrize(
    'change',
    ['another network', 'a wider tower', 'a tower without bias', 'another scaler', 'a parametrised weight',
     'another aggregation'],
)  # fmt: skip
def test_a_layer_that_is_not_as_pyg_made_it(change):
    plain, _ = made('towers')
    if change == 'another network':
        plain.post_nns[1] = torch.nn.Sequential(torch.nn.Tanh(), plain.post_nns[1][0])
    elif change == 'a wider tower':
        for nn, width in zip(plain.post_nns, (3, 5), strict=True):
            nn[0] = pyg.Linear(nn[0].in_channels, width)
    elif change == 'a tower without bias':
        plain.post_nns[1][0] = pyg.Linear(plain.post_nns[1][0].in_channels, 4, bias=False)
    elif change == 'another scaler':

        class Doubled(pyg.aggr.DegreeScalerAggregation):
            def forward(self, *args, **kwargs):
                return 2 * super().forward(*args, **kwargs)

        plain.aggr_module.__class__ = Doubled
    elif change == 'a parametrised weight':
        torch.nn.utils.parametrizations.weight_norm(plain.post_nns[0][0])
    else:
        plain.aggr_module.aggr = pyg.aggr.MultiAggregation(['sum', 'max', 'mean', 'min'])
    conv = pygfuse.fuse(copy.deepcopy(plain))
    given = given_to(plain)
    reference = results(copy.deepcopy(plain).double(), given, torch.float64, 0)
    assert_close(results(conv, given, torch.float32, 0), reference, results(plain, given, torch.float32, 0))


class _Drawn(torch.nn.Module):
    def forward(self, parameter):
        return parameter + torch.rand(())


def test_what_is_drawn_at_each_read_is_read_in_the_order_of_pyg():
    plain, _ = made('towers')
    for nn in plain.post_nns:
        for name in ('weight', 'bias'):
            torch.nn.utils.parametrize.register_parametrization(nn[0], name, _Drawn())
    conv = pygfuse.fuse(copy.deepcopy(plain))
    found = []
    for layer in (plain, conv):
        torch.manual_seed(4)
        found.append(layer(**given_to(plain)))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize('shape', [(16, 4), (4, 2, 8)])
def test_features_that_pyg_takes_for_others_are_taken_so(shape):
    plain, conv = made('one tower')
    x, edge_index = torch.randn(shape), torch.tensor([[0, 1, 2], [1, 2, 0]])
    torch.testing.assert_close(conv(x, edge_index), plain(x, edge_index))


def test_copies_pickles_and_the_plain_layer():
    plain, conv = made('towers')
    given = given_to(plain)
    out = conv(**given)
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(other(**given), out)
    assert conv.state_dict().keys() == plain.state_dict().keys()
    back = pygfuse.unfuse(conv)
    assert type(back) is pyg.PNAConv
    assert torch.equal(back(**given), plain(**given))


def test_an_edge_that_is_not_there_is_an_error():
    _, conv = made('one tower')
    x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1], [1, 3]])
    with pytest.raises((ValueError, IndexError)):
        conv(x, edge_index)


def test_under_autocast_types_are_those_of_pyg():
    plain, conv = made('towers')
    with torch.autocast('cpu', torch.bfloat16):
        assert conv(**given_to(plain)).dtype is plain(**given_to(plain)).dtype


def test_explained():
    plain, conv = made('one tower')

    class Model(torch.nn.Module):
        def __init__(self, conv):
            super().__init__()
            self.conv = conv

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    found = []
    for layer in (plain, conv):
        torch.manual_seed(2)
        explainer = Explainer(
            Model(layer), GNNExplainer(epochs=3), explanation_type='model', edge_mask_type='object',
            node_mask_type='attributes',
            model_config={'mode': 'multiclass_classification', 'task_level': 'node', 'return_type': 'raw'},
        )  # fmt: skip
        found.append(explainer(**given_to(plain)))
    torch.testing.assert_close(found[1].edge_mask, found[0].edge_mask)


@pytest.mark.slow
def test_under_torch_compile():
    plain, conv = made('towers')
    given = given_to(plain)
    torch.testing.assert_close(torch.compile(conv)(**given), plain(**given), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures('by_pyg')
@pytest.mark.parametrize('num_edges', [300, 1000, 1900, 2200])
def test_bits_are_those_of_the_first_call(num_edges):
    """Whichever way a call runs is decided by its sizes."""
    _, conv = made('one scaler', scalers=SCALERS[:2])
    x, edge_index = torch.randn(300, 8), torch.randint(300, (2, num_edges))
    first = conv(x, edge_index)
    assert all(torch.equal(conv(x, edge_index), first) for _ in range(3))
