"""SplineConv without pyg-lib: PyG's numbers and gradients, with splines by their definition."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
from pygfuse.conv import SplineConv
from pygfuse.memory import saved_bytes
from tests.support.copies import copies
from tests.support.parity import GRAPHS, Example, Parity, random_edges
from tests.support.pyg_lib import with_pyg_lib  # noqa: F401 (a fixture)

pytestmark = [
    pytest.mark.usefixtures('with_pyg_lib'),
    pytest.mark.filterwarnings('ignore:We do not recommend using the non-optimized CPU version'),
]

IN, OUT = 5, 4
PARITY = Parity(pyg.SplineConv, SplineConv)
OPTIONS = {'in_channels': IN, 'out_channels': OUT, 'dim': 2, 'kernel_size': 3}


def coordinates(example: Example, dim: int = 2) -> Tensor:
    found = torch.rand(example.num_edges, dim, generator=torch.Generator().manual_seed(3))
    # an end of the interval, and a knot; at the other end a derivative has two sides
    found[:1], found[1:2] = 0.0, 0.5
    return found


def check(example: Example, options: dict | None = None, **arguments: object) -> None:
    options = {**OPTIONS, **(options or {})}
    given = {'x': example.x(IN), 'edge_index': example.edge_index, 'edge_attr': coordinates(example, options['dim'])}
    PARITY.check(options, **{**given, **arguments})


@pytest.mark.parametrize('graph', [name for name in GRAPHS if name != 'hub'])
@pytest.mark.parametrize('aggr', ['mean', 'max'])
def test_graphs(graph, aggr):
    check(GRAPHS[graph](), {'aggr': aggr})


@pytest.mark.parametrize(
    'options',
    [
        {'degree': 2},
        {'degree': 3, 'kernel_size': 4},
        {'is_open_spline': False},
        {'is_open_spline': False, 'degree': 3, 'kernel_size': 5},
        {'is_open_spline': [True, False], 'kernel_size': [3, 4]},
        {'dim': 1, 'kernel_size': 5},
        {'dim': 3, 'kernel_size': 2},
        {'aggr': 'add'},
        {'aggr': 'min'},
        {'root_weight': False},
        {'bias': False},
        {'root_weight': False, 'bias': False},
        {'flow': 'target_to_source'},
    ],
    ids=str,
)
def test_options(options):
    check(GRAPHS['repeated edges'](), options)


def test_more_edges_of_a_weight_than_are_taken_together():
    example = Example(random_edges(300, 300, 20_000), 300, 300)
    check(example, {'kernel_size': 2})


def test_a_width_that_the_first_input_says():
    _, x, *given = layer_and_inputs()
    layers = []
    for kind in (pyg.SplineConv, SplineConv):
        torch.manual_seed(0)
        layers.append(kind(**{**OPTIONS, 'in_channels': -1}).double())
        layers[-1](x, *given)
    torch.testing.assert_close(layers[1](x, *given), layers[0](x, *given))
    assert layers[1].note.reason is None


def test_targets_without_features():
    example = GRAPHS['bipartite, more sources']()
    x, _ = example.x(IN)
    check(example, {'root_weight': False}, x=(x, None), size=(example.num_sources, example.num_targets))


@pytest.mark.parametrize('is_open', [True, False])
@pytest.mark.parametrize('degree', [1, 2, 3])
def test_both_ends_of_the_interval(degree, is_open):
    layers = PARITY.make({**OPTIONS, 'kernel_size': 4, 'degree': degree, 'is_open_spline': is_open})
    edge_index, edge_attr = (
        torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]),
        torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 2),
    )
    torch.testing.assert_close(*[conv(torch.eye(4, IN), edge_index, edge_attr) for conv in layers])


def test_edges_that_are_no_list():
    example = GRAPHS['random']()
    for adjacency in ('int32', 'not contiguous'):
        edges = example.edge_index.int() if adjacency == 'int32' else example.edge_index.t().contiguous().t()
        check(example, pyg_edge_index=example.edge_index, edge_index=edges)


def layer_and_inputs(**options: object) -> tuple[SplineConv, Tensor, Tensor, Tensor]:
    conv, example = PARITY.make({**OPTIONS, **options})[1].double(), GRAPHS['random']()
    return conv, example.x(IN).double(), example.edge_index, coordinates(example).double()


def test_coordinates_that_are_kept_follow_writes():
    conv, x, edge_index, edge_attr = layer_and_inputs()
    before = conv(x, edge_index, edge_attr)
    assert torch.equal(conv(x, edge_index, edge_attr), before)
    edge_attr[3:] = edge_attr[3:].flip(0)
    torch.testing.assert_close(conv(x, edge_index, edge_attr), conv(x, edge_index, edge_attr.clone()))
    assert not torch.equal(conv(x, edge_index, edge_attr), before)
    # other splines over the same coordinates
    other = layer_and_inputs(kernel_size=4)[0]
    torch.testing.assert_close(other(x, edge_index, edge_attr), other(x, edge_index, edge_attr.clone()))


@pytest.mark.parametrize('aggr', ['mean', 'max'])
def test_gradients_of_gradients(aggr):
    conv = PARITY.make({**OPTIONS, 'aggr': aggr, 'degree': 2})[1].double()
    x, edge_attr = torch.randn(4, IN).double().requires_grad_(), (0.1 + 0.3 * torch.rand(5, 2)).double()
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 2, 0, 1]])
    leaves = x, edge_attr.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, e: conv(x, edge_index, e), leaves)
    assert torch.autograd.gradgradcheck(lambda x, e: conv(x, edge_index, e), leaves)


def test_saved_bytes_do_not_grow_with_rows_of_edges():
    x, saved = torch.randn(50, 64, requires_grad=True), []
    for channels in (8, 64):
        conv, edge_index = SplineConv(64, channels, dim=2, kernel_size=3), random_edges(50, 50, 4000)
        edge_attr = torch.rand(4000, 2)
        saved.append(saved_bytes(lambda conv=conv, e=edge_index, a=edge_attr: conv(x, e, a)))
    # the coefficients of edges, four numbers each, and their ends
    rows = 4000 * 4 * 4 + 4000 * 2 * 8
    assert saved[0] < rows + 9 * 64 * 8 * 4 + 4 * 50 * 64 * 4
    assert saved[1] - saved[0] <= 9 * 64 * 56 * 4 + 4 * 50 * 56 * 4


def test_training_for_twenty_steps():
    example, losses = GRAPHS['random'](), []
    edge_attr = coordinates(example)
    for conv in PARITY.make(OPTIONS):
        optimizer = torch.optim.Adam(conv.parameters(), lr=0.02)
        for _ in range(20):
            optimizer.zero_grad()
            loss = (conv(example.x(IN), example.edge_index, edge_attr) - 1.0).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_constructor_parameters_and_printed_form():
    names = [[*inspect.signature(kind.__init__).parameters] for kind in (pyg.SplineConv, SplineConv)]
    assert names[0] == names[1]
    made = []
    for kind in (pyg.SplineConv, SplineConv):
        torch.manual_seed(0)
        made.append(kind(IN, OUT, 2, [3, 4], is_open_spline=[True, False], degree=2))
    plain, fused = made
    assert repr(fused) == repr(plain)
    assert (fused.K, fused.dim, fused.degree, fused.root_weight) == (plain.K, plain.dim, plain.degree, True)
    assert list(fused.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(fused.state_dict(), plain.state_dict(), rtol=0, atol=0)
    torch.manual_seed(1)
    plain.reset_parameters()
    torch.manual_seed(1)
    fused.reset_parameters()
    torch.testing.assert_close(fused.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_layers_of_pyg_are_swapped():
    example = GRAPHS['random']()
    given = example.x(IN), example.edge_index, coordinates(example)
    model = torch.nn.ModuleList([PARITY.make(OPTIONS)[0]])
    expected = model[0](*given)
    pygfuse.fuse(model)
    assert type(model[0]) is SplineConv
    torch.testing.assert_close(model[0](*given), expected)
    assert [row.why_not for row in pygfuse.report(model)] == [None]
    pygfuse.unfuse(model)
    assert type(model[0]) is pyg.SplineConv
    torch.testing.assert_close(model[0](*given), expected)


def test_what_is_not_fused_runs_without_pyg_lib():
    conv, *given = layer_and_inputs()
    expected = conv(*given)
    handle = conv.register_message_forward_hook(lambda module, inputs, out: out)
    torch.testing.assert_close(conv(*given), expected)
    assert conv.note.reason is not None
    handle.remove()


def test_copies_and_files(tmp_path):
    conv, *given = layer_and_inputs()
    expected = conv(*given)
    for twin in copies(conv, tmp_path):
        assert type(twin) is SplineConv
        assert torch.equal(twin(*given), expected)


def test_within_torch_compile():
    conv, *given = layer_and_inputs()
    torch.testing.assert_close(torch.compile(conv)(*given), conv(*given))


WRONG = {
    'coordinates': (lambda a: {'edge_attr': a - 3.0}, "Expected 'edge_attr' to lie between 0 and 1 (got -3)"),
    'no number': (lambda a: {'edge_attr': a / 0.0}, "Expected 'edge_attr' to lie between 0 and 1 (got nan)"),
    'dimensions': (lambda a: {'edge_attr': a[:, :1]}, "Expected 'edge_attr' of shape [389, 2], a row for each edge"),
    'missing': (lambda a: {'edge_attr': None}, "Expected 'edge_attr' to be given"),
    'width': (lambda a: {'x': torch.ones(20, 3).double()}, "Expected 'x' to have 5 features, as in_channels says"),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_are_named(name):
    conv, x, edge_index, edge_attr = layer_and_inputs()
    change, message = WRONG[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        conv(**{'x': x, 'edge_index': edge_index, 'edge_attr': edge_attr, **change(edge_attr)})


def test_a_degree_that_there_is_not():
    with pytest.raises(ValueError, match=re.escape("Expected 'degree' to be one of (1, 2, 3) (got 4)")):
        SplineConv(IN, OUT, 2, 3, degree=4)


def test_under_autocast_coefficients_are_not_narrow():
    conv, example = PARITY.make(OPTIONS)[1], GRAPHS['random']()
    given = example.x(IN), example.edge_index, coordinates(example)
    with torch.autocast('cpu', torch.bfloat16):
        out = conv(*given)
        out.sum().backward()
    assert conv.note.reason == 'autocast is on'
    torch.testing.assert_close(out.float(), conv(*given), atol=0.02, rtol=0.02)


def test_within_transforms_of_torch_func():
    conv, *given = layer_and_inputs()
    parameters = dict(conv.named_parameters())
    expected = torch.autograd.grad(conv(*given).square().sum(), list(parameters.values()))
    found = torch.func.grad(lambda those: torch.func.functional_call(conv, those, tuple(given)).square().sum())(
        parameters
    )
    torch.testing.assert_close(list(found.values()), list(expected))


@pytest.mark.parametrize('aggr', ['add', 'max'])
def test_rows_that_are_wanted(aggr):
    conv, x, edge_index, edge_attr = layer_and_inputs(aggr=aggr)
    mask = torch.arange(len(x)) < 3
    expected = conv(conv(x, edge_index, edge_attr).repeat(1, 2)[:, :IN], edge_index, edge_attr)[mask]
    with pygfuse.active(mask):
        found = conv(conv(x, edge_index, edge_attr).repeat(1, 2)[:, :IN], edge_index, edge_attr)[mask]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
@pytest.mark.parametrize('aggr', ['add', 'mean', 'max'])
def test_edges_that_are_written_into_before_backward(aggr, flow):
    conv, x, edge_index, edge_attr = layer_and_inputs(aggr=aggr, flow=flow)
    out = conv(x, edge_index, edge_attr)
    edge_index[0] = edge_index[0].flip(0)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


def test_features_that_the_caller_writes_into():
    conv, x, edge_index, edge_attr = layer_and_inputs(root_weight=False, out_channels=IN)
    x = x.requires_grad_()
    expected = torch.autograd.grad((x * 1.0 + conv(x, edge_index, edge_attr)).square().sum(), x)
    hidden = x * 1.0
    hidden += conv(hidden, edge_index, edge_attr)
    torch.testing.assert_close(torch.autograd.grad(hidden.square().sum(), x), expected)
