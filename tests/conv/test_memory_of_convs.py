from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch_geometric.nn

import pygfuse
import pygfuse.conv
from pygfuse.memory import peak_bytes, saved_bytes
from tests.support import cases as table
from tests.support.parity import GRAPHS, random_edges

FEATURES, HEADS, CHANNELS = 8, 2, 4
HEADED = {'out_channels': CHANNELS, 'heads': HEADS}
# name of a class in both packages, options of its constructor
CONVS = [
    ('GATConv', HEADED),
    ('GATConv', {**HEADED, 'add_self_loops': False}),
    ('GATConv', {**HEADED, 'dropout': 0.5}),
    ('GATConv', {**HEADED, 'aggr': 'mean', 'concat': False, 'residual': True}),
    ('GATv2Conv', HEADED),
    ('GATv2Conv', {**HEADED, 'dropout': 0.5, 'add_self_loops': False}),
    ('TransformerConv', HEADED),
    ('TransformerConv', {**HEADED, 'dropout': 0.5}),
    ('GCNConv', {'out_channels': CHANNELS}),
    ('GCNConv', {'out_channels': CHANNELS, 'normalize': False}),
    *[('SAGEConv', {'out_channels': CHANNELS, 'aggr': aggr}) for aggr in ('mean', 'max', 'min')],
    ('GraphConv', {'out_channels': CHANNELS}),
    ('AGNNConv', {}),
    ('ResGatedGraphConv', {'out_channels': CHANNELS}),
    ('CGConv', {}),
    ('FAConv', {'dropout': 0.5}),
    ('GINConv', {'nn': torch.nn.Linear(FEATURES, CHANNELS)}),
    ('EdgeConv', {'nn': torch.nn.Linear(2 * FEATURES, CHANNELS)}),
]
# The same for layers that take something of each edge: the name of that argument, how many numbers it holds, and how
# many numbers an edge are saved beside it (edge weights continued by those of self-loops, and where these are).
WITH_EDGES = [
    ('GATConv', {**HEADED, 'edge_dim': 3}, 'edge_attr', 3, 0),
    (
        'GATConv',
        {'out_channels': CHANNELS, 'heads': HEADS, 'edge_dim': 3, 'add_self_loops': False},
        'edge_attr',
        3,
        HEADS,
    ),
    ('GATv2Conv', {**HEADED, 'edge_dim': 3}, 'edge_attr', 3, 0),
    (
        'GATv2Conv',
        {'out_channels': CHANNELS, 'heads': HEADS, 'edge_dim': 3, 'add_self_loops': False},
        'edge_attr',
        3,
        0,
    ),
    ('TransformerConv', {**HEADED, 'edge_dim': 3}, 'edge_attr', 3, 0),
    ('GCNConv', {'out_channels': CHANNELS}, 'edge_weight', None, 1.1),
    ('GCNConv', {'out_channels': CHANNELS, 'normalize': False}, 'edge_weight', None, 0),
    ('GraphConv', {'out_channels': CHANNELS}, 'edge_weight', None, 0),
    ('GINEConv', {'nn': torch.nn.Linear(FEATURES, CHANNELS)}, 'edge_attr', FEATURES, 0),
    ('GINEConv', {'nn': torch.nn.Linear(FEATURES, CHANNELS), 'edge_dim': 3}, 'edge_attr', 3, 0),
    ('GMMConv', {'out_channels': CHANNELS, 'dim': 2, 'kernel_size': 3}, 'edge_attr', 2, 0),
    ('ResGatedGraphConv', {'out_channels': CHANNELS, 'edge_dim': 3}, 'edge_attr', 3, 0),
    ('CGConv', {'dim': 3}, 'edge_attr', 3, 0),
    ('FAConv', {'normalize': False}, 'edge_weight', None, 0),
    ('NNConv', {'out_channels': CHANNELS, 'nn': torch.nn.Linear(3, FEATURES * CHANNELS)}, 'edge_attr', 3, 0),
]


def made(name: str, options: dict):
    """A fused layer of this name."""
    first = (FEATURES,) if name not in ('GINConv', 'GINEConv', 'EdgeConv', 'AGNNConv') else ()
    return getattr(pygfuse.conv, name)(*first, **options)


@pytest.mark.parametrize(('name', 'options'), CONVS, ids=str)
def test_what_is_saved_does_not_grow_with_edges(name, options):
    conv = made(name, options)
    x = torch.randn(100, FEATURES, requires_grad=True)
    inputs = (x, x) if name == 'FAConv' else (x,)
    saved = []
    for num_edges in (1000, 2000):
        edge_index = random_edges(100, 100, num_edges)
        saved.append(saved_bytes(lambda edges=edge_index: conv(*inputs, edges), exclude=[edge_index]))
    assert conv.note.reason is None
    assert saved[0] == saved[1]
    if name.startswith('GAT'):  # the measure sees what PyG keeps
        pygfuse.unfuse(conv)
        assert saved_bytes(lambda: conv(x, edge_index)) > saved[0] + 2000 * HEADS * CHANNELS * 4


@pytest.mark.parametrize(('name', 'options', 'argument', 'width', 'copied'), WITH_EDGES, ids=str)
def test_edge_features_are_all_that_grows_with_edges(name, options, argument, width, copied):
    conv = made(name, options)
    x = torch.randn(100, FEATURES, requires_grad=True)
    inputs = {'x': x, **({'x_0': x} if name == 'FAConv' else {})}
    saved = []
    for num_edges in (1000, 2000):
        shape = (num_edges,) if width is None else (num_edges, width)
        step = {'edge_index': random_edges(100, 100, num_edges), argument: torch.rand(shape, requires_grad=True)}
        saved.append(saved_bytes(lambda step=step: conv(**inputs, **step), exclude=step.values()))
    assert conv.note.reason is None
    assert saved[1] - saved[0] <= 1000 * 4 * copied


WIDE = 48
WIDE_HEADED = {'in_channels': 32, 'out_channels': 8, 'heads': 4, 'edge_dim': WIDE}
WITH_WIDE_FEATURES = [
    ('GATv2Conv', WIDE_HEADED, False),
    # without loops, whose means give features of edges another gradient
    ('GATv2Conv', {**WIDE_HEADED, 'add_self_loops': False}, True),
    ('TransformerConv', WIDE_HEADED, True),
    ('GINEConv', {'nn': torch.nn.Linear(32, CHANNELS), 'edge_dim': WIDE}, True),
]


@pytest.mark.parametrize(('name', 'options', 'of_features'), WITH_WIDE_FEATURES, ids=str)
def test_wide_edge_features_are_multiplied_without_a_row_for_each_edge(name, options, of_features):
    """Neither what is saved nor the peak has a row of the layer's 32 channels for each edge."""
    conv, num_edges, x = getattr(pygfuse.conv, name)(**options), 40_000, torch.randn(100, 32, requires_grad=True)
    edge_index = random_edges(100, 100, num_edges)
    edge_attr = torch.randn(num_edges, WIDE, requires_grad=of_features)

    def step() -> None:
        out = conv(x, edge_index, edge_attr=edge_attr)
        torch.autograd.grad(out.sum(), [x, *([edge_attr] if of_features else []), *conv.parameters()])

    row = num_edges * 4
    assert saved_bytes(step, exclude=[x, edge_index, edge_attr, *conv.parameters()]) < row * 4
    assert peak_bytes(step, warmup=1) < row * (4 + (WIDE if of_features else 0))
    assert conv.note.reason is None


def _power_law_edges(num_nodes: int, num_edges: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    weights = torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -0.7
    ends = [torch.multinomial(weights, num_edges, replacement=True, generator=generator) for _ in range(2)]
    return torch.stack(ends)


@pytest.mark.slow
def test_the_peak_of_a_step_is_a_tenth_of_that_of_pyg():
    torch.manual_seed(0)
    edge_index = _power_law_edges(11_758, 1_040_000)
    x = torch.randn(11_758, 64)
    fused = pygfuse.conv.GATConv(64, 16, heads=4)
    pyg = torch_geometric.nn.GATConv(64, 16, heads=4)

    def peak(conv) -> int:
        def step():
            conv.zero_grad(set_to_none=False)
            conv(x, edge_index).sum().backward()

        return peak_bytes(step, warmup=1)

    assert 10 * peak(fused) <= peak(pyg)


@pytest.fixture
def what_was_there_is_not_collected():
    """A collection looks at what a test makes: all else that the process holds takes it half a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures('what_was_there_is_not_collected')
@pytest.mark.parametrize('backward', [False, True])
@pytest.mark.parametrize('name', table.EVERY)
def test_nothing_outlives_a_step(name, backward):
    """Autograd's nodes are invisible to Python's garbage collector: what they hold must not hold them."""
    conv, inputs = table.EVERY[name].fused(), table.EVERY[name].inputs(GRAPHS['random']())
    given = {key: value.clone().requires_grad_() for key, value in inputs.items()}
    given['edge_index'] = GRAPHS['random']().edge_index
    out = conv(**given)
    if backward:
        out.square().sum().backward()
    assert conv.note.reason is None
    alive = [weakref.ref(value) for value in (out, *given.values())]
    del out, given
    gc.collect()
    assert [reference() is None for reference in alive] == [True] * len(alive)
