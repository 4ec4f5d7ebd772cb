"""The switches of the ablation: the same numbers, another amount of memory."""

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse.conv
from pygfuse import ablation
from pygfuse._lib.modes import Modes, modes
from pygfuse.memory import saved_bytes

OFF = {
    'reorganisation': {'reorganisation': False},
    'fusion': {'fusion': False},
    'recomputation': {'recomputation': False},
    'reorganisation and fusion': {'reorganisation': False, 'fusion': False},
    'reorganisation and recomputation': {'reorganisation': False, 'recomputation': False},
}
LAYERS = {
    'GATConv': ((6, 4), {'heads': 2, 'edge_dim': 3, 'dropout': 0.3}),
    'GATv2Conv': ((6, 4), {'heads': 2}),
    'FAConv': ((6,), {}),
    'EdgeConv': ((torch.nn.Linear(12, 4),), {}),
    'CGConv': ((6,), {'dim': 3}),
    'SAGEConv': ((6, 4), {}),
}


def gradients(conv, edge_index):
    torch.manual_seed(0)
    x = torch.randn(20, 6, dtype=torch.double, requires_grad=True)
    more = (torch.randn(edge_index.shape[1], 3, dtype=torch.double),) if 3 in _edge_widths(conv) else ()
    first = (x, x.detach()) if isinstance(conv, pyg.FAConv) else (x,)
    torch.manual_seed(1)
    out = conv(*first, edge_index, *more)
    return out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])


def _edge_widths(conv):
    return {getattr(conv, 'edge_dim', None), getattr(conv, 'dim', None)}


@pytest.mark.parametrize('off', OFF)
@pytest.mark.parametrize('name', LAYERS)
def test_numbers_stay_the_same(name, off):
    arguments, options = LAYERS[name]
    conv = getattr(pygfuse.conv, name)(*arguments, **options).double()
    edge_index = torch.randint(20, (2, 200))
    expected = gradients(conv, edge_index)
    with ablation(**OFF[off]):
        found = gradients(conv, edge_index)
    reason = 'reorganisation is switched off' if name in ('EdgeConv', 'CGConv') and 'reorg' in off else None
    assert conv.note.reason == reason
    for got, right in zip(found, expected, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-9)


def bytes_of_edge(conv, **off):
    """What one more edge adds to what is saved for backward, in values."""
    x = torch.randn(30, 6, requires_grad=True)
    saved = []
    for edges in (200, 400):
        edge_index = torch.randint(30, (2, edges))
        with ablation(**off):
            saved.append(saved_bytes(lambda edge_index=edge_index: conv(x, edge_index), exclude=[edge_index]))
    return (saved[1] - saved[0]) / 200 / 4


def test_what_each_switch_saves():
    conv = pygfuse.conv.GATConv(6, 8, heads=2, add_self_loops=False)
    assert bytes_of_edge(conv) == 0
    assert bytes_of_edge(conv, recomputation=False) == 2
    assert bytes_of_edge(conv, fusion=False) > 8


def test_blocks_nest_and_end():
    with ablation(fusion=False):
        with ablation(recomputation=False):
            assert modes() == Modes(recomputation=False)
        assert modes() == Modes(fusion=False)
    assert modes() == Modes()
