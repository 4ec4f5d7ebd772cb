"""Layers of a user's own: compiled, guarded by what they read, or refused by name."""

import contextlib
import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.utils.checkpoint import checkpoint
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler import own_convs
from tests.compiler.own_convs import CONVS, REFUSED, Gate, HeadedAttention, NaiveAttention, Own
from tests.support import parity
from tests.support.parity import GRAPHS

OPTIONS = {'edge_attr': lambda example: example.edge_attr(3), 'edge_weight': lambda example: example.edge_attr()}


def arguments(example, names=()):
    return {'edge_index': example.edge_index, 'x': example.x(8), **{name: OPTIONS[name](example) for name in names}}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'bipartite, more sources', 'hub'])
@pytest.mark.parametrize('name', CONVS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    kind, names = CONVS[name]
    torch.manual_seed(0)
    conv, given = kind(), arguments(GRAPHS[graph](), names)
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    plain = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    pygfuse.compile(conv)
    wide = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    narrow = parity.results(conv, given, torch.float32, 0)
    assert conv.note.reason is None
    parity.assert_close(wide, reference)
    parity.assert_close(narrow, reference, plain)


def test_equal_gradients_of_a_hub_are_summed_as_well_as_by_pyg():
    """All edges from one node into the hub pass the same gradient: each addition in one long line rounds the same way.

    PyG adds them up in a matrix product over all edges, whose library sums in blocks.
    """
    kind, _ = CONVS['two layers']
    errors, of_pyg = [], []
    for seed in range(8):
        torch.manual_seed(seed)
        example = GRAPHS['hub']()
        conv, given = kind(), {'edge_index': example.edge_index, 'x': example.x(8, seed=seed)}
        reference, plain = (
            parity.results(copy.deepcopy(conv).to(dtype), given, dtype, seed)
            for dtype in (torch.float64, torch.float32)
        )
        found = parity.results(pygfuse.compile(conv), given, torch.float32, seed)
        assert conv.note.reason is None
        for errors_of, results in ((errors, found), (of_pyg, plain)):
            wrong = {name: (results[name].double() - expected).norm() for name, expected in reference.items()}
            errors_of.append(wrong['gradient of nn.0.weight'] / reference['gradient of nn.0.weight'].norm())
    means = [torch.stack(some).log().mean().exp() for some in (errors, of_pyg)]
    assert means[0] <= 2 * means[1]


@pytest.mark.parametrize('kind', REFUSED, ids=lambda kind: kind.__name__)
def test_what_has_no_fused_form_says_why(kind):
    given = arguments(GRAPHS['random']())
    torch.manual_seed(0)
    expected = kind()(**given)
    conv = pygfuse.compile(kind())
    torch.manual_seed(0)
    torch.testing.assert_close(conv(**given), expected)
    assert conv.note.reason == REFUSED[kind]


def test_an_isolated_node_gets_no_gradient_that_is_no_number():
    conv = pygfuse.compile(own_convs.Distance())
    x = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    conv(torch.tensor([[0, 1], [1, 0]]), x=x).sum().backward()
    assert conv.note.reason is None
    assert bool(x.grad.isfinite().all())
    assert x.grad[2].tolist() == [0, 0]


class OfTargets(Own):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def message(self, x_i, index, ptr, size_i):
        return self.lin(softmax(softmax(x_i, index, ptr, size_i), index, ptr, size_i).exp())


# exp(800) is infinite
@pytest.mark.parametrize('value', [0.5, 800.0])
def test_softmaxes_of_targets_leave_isolated_nodes_alone(value):
    conv, x, edge_index = OfTargets(), torch.full((3, 2), value).requires_grad_(), torch.tensor([[0, 1, 2], [1, 0, 0]])

    def run():
        out = conv(edge_index, x=x)
        return out, torch.autograd.grad(out[:, 0].sum(), [x, *conv.parameters()])

    expected = run()
    pygfuse.compile(conv)
    torch.testing.assert_close(run(), expected)
    assert conv.note.reason is None


class Scaled(Own):
    def __init__(self):
        super().__init__()
        self.factor, self.act, self.lin = 2.0, torch.relu, torch.nn.Linear(8, 8)

    def message(self, x_i, x_j):
        return self.act(self.lin(x_i + x_j)) * self.factor


@pytest.mark.parametrize(
    'change',
    [
        lambda conv: setattr(conv, 'factor', 3.0),
        lambda conv: setattr(conv, 'factor', torch.nn.Parameter(torch.ones(8))),
        lambda conv: setattr(conv, 'act', torch.tanh),
        lambda conv: setattr(conv, 'lin', torch.nn.Linear(8, 5)),
        lambda conv: setattr(conv, 'aggr_module', torch_geometric_max()),
        lambda conv: conv.lin.weight.data.add_(1.0),
        lambda conv: conv.lin.register_forward_hook(lambda module, args, out: out + 1),
    ],
)
def test_what_a_message_read_of_the_layer_is_read_again(change):
    conv, given = pygfuse.compile(Scaled()), arguments(GRAPHS['random']())
    conv(**given)
    change(conv)
    found, expected = conv(**given), pygfuse.unfuse(copy.deepcopy(conv))(**given)
    torch.testing.assert_close(found, expected)


def torch_geometric_max():
    from torch_geometric.nn.aggr import MaxAggregation

    return MaxAggregation()


def test_a_layer_is_captured_once_for_each_kind_of_call():
    conv, example = pygfuse.compile(Scaled()), GRAPHS['random']()
    for _ in range(3):
        conv(**arguments(example))
    assert len(conv.plans()) == 1
    conv.double()(example.edge_index, x=example.x(8).double())
    assert len(conv.plans()) == 2


def test_numbers_that_change_in_each_call_are_not_compiled_for_ever():
    conv, given = pygfuse.compile(Scaled()), arguments(GRAPHS['path']())
    with pygfuse.ablation(fusion=False):
        for step in range(20):
            conv.factor = float(step + 1)
            torch.testing.assert_close(conv(**given), pygfuse.unfuse(copy.deepcopy(conv))(**given))
    assert conv.note.reason == 'what its message reads changed more than 16 times'


class Times(Own):
    def message(self, x_j, number):
        return number * x_j


def test_arguments_that_change_in_each_call_are_not_compiled_for_ever():
    conv, x = pygfuse.compile(Times()), torch.randn(4, 3)
    with pygfuse.ablation(fusion=False):
        for number in range(20):
            out = conv(torch.tensor([[0, 1], [1, 2]]), x=x, number=float(number))
            torch.testing.assert_close(out[1:3], number * x[:2])
    assert conv.note.reason == 'what its message reads changed more than 16 times'
    assert len(conv.plans()) == 16


def checked_with_a_row_of_zeros(place):
    """A network with a row of a weight that is zero, whose numbers are PyG's, and what it is called with."""
    torch.manual_seed(0)
    conv, given = own_convs.Network(), arguments(GRAPHS['random']())
    with torch.no_grad():
        conv.nn[place].weight[0] = 0.0
    expected = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    pygfuse.compile(conv)
    parity.assert_close(parity.results(conv, given, torch.float32, 0), expected)
    return conv, given


@pytest.mark.parametrize('place', [0, 2, 4])
def test_edges_that_tie_by_a_row_of_zeros_divide_a_gradient(place):
    conv, given = checked_with_a_row_of_zeros(place)
    assert conv.note.reason == 'all edges tie where a row of weights is zero'
    with torch.no_grad():
        conv(**given)
    assert conv.note.reason is None


def test_dropout_of_attention_is_drawn_by_torch_s_seed():
    conv, given = pygfuse.compile(HeadedAttention(dropout=0.5)), arguments(GRAPHS['random'](), ('edge_attr',))
    outs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outs.append(conv(**given))
    assert conv.note.reason is None
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    conv.eval()
    assert torch.equal(conv(**given), conv(**given))


@pytest.mark.parametrize('kind', [NaiveAttention, own_convs.TwoLayers, Gate])
def test_saved_bytes_do_not_grow_with_edges(kind):
    torch.manual_seed(0)
    conv, x = pygfuse.compile(kind()), torch.randn(50, 8, requires_grad=True)

    def saved(num_edges):
        edge_index = torch.randint(50, (2, num_edges))
        given = {'edge_attr': torch.randn(num_edges, 3)} if kind is Gate else {}
        own = sum(tensor.nbytes for tensor in (edge_index, *given.values()))
        found = saved_bytes(lambda: conv(edge_index, x=x, **given))
        assert conv.note.reason is None
        return found - own

    assert saved(2000) <= saved(500)


def test_explainers_and_hooks_see_messages():
    conv, given = pygfuse.compile(NaiveAttention()), arguments(GRAPHS['random']())
    seen = []
    handle = conv.register_message_forward_hook(lambda module, inputs, out: seen.append(out.shape))
    conv(**given)
    assert 'a hook is registered' in conv.note.reason
    assert seen
    handle.remove()
    conv(**given)
    assert conv.note.reason is None


def test_an_explainer_comes_and_goes():
    conv, example = pygfuse.compile(NaiveAttention()), GRAPHS['random']()
    expected = conv(**arguments(example))
    conv.explain = True
    conv._edge_mask, conv._apply_sigmoid = torch.zeros(example.num_edges), False
    assert conv(**arguments(example)).abs().max() == 0
    conv.explain = False
    torch.testing.assert_close(conv(**arguments(example)), expected)
    assert conv.why_not() is None


def test_double_backward():
    conv, example = pygfuse.compile(NaiveAttention(4)).double(), GRAPHS['path']()
    x = example.x(4).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: conv(example.edge_index, x=x), (x,))


def test_naive_attention_is_explained_as_the_expert_s_program():
    conv = pygfuse.compile(NaiveAttention())
    conv(**arguments(GRAPHS['random']()))
    said = str(pygfuse.explain(conv))
    assert 'leaky_relu' in said.split('walk:')[1]
    costs = [line for line in said.splitlines() if 'operations:' in line]
    numbers = [int(line.split('operations: ')[1].split(' ')[0]) for line in costs]
    assert numbers == [54, 23]
    assert costs[1].endswith('numbers an edge in memory: 0')


def test_what_is_explained_with_an_index_of_int32_has_the_right_gradients():
    torch.manual_seed(0)
    conv, example = pygfuse.compile(pyg.LEConv(8, 4)), GRAPHS['hub']()
    found = []
    for edge_index in (example.edge_index, example.edge_index.int()):
        set_masks(conv, torch.linspace(0, 1, example.num_edges), example.edge_index, apply_sigmoid=False)
        x = example.x(8).requires_grad_()
        conv(x, edge_index).square().sum().backward()
        found.append(x.grad)
        clear_masks(conv)
    torch.testing.assert_close(*found)


def test_a_network_that_is_checkpointed_within_active_has_the_right_gradients():
    torch.manual_seed(0)
    conv, example = pygfuse.compile(own_convs.Network()), GRAPHS['random']()
    mask, found = torch.arange(60) % 3 == 0, []
    for block in (contextlib.nullcontext(), pygfuse.active(mask)):
        x = example.x(8).requires_grad_()
        with block:
            out = checkpoint(lambda x: conv(example.edge_index, x=x), x, use_reentrant=False)
        out[mask].square().sum().backward()
        found.append(x.grad)
    assert conv.note.reason is None
    torch.testing.assert_close(*found)
