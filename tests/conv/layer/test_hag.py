from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
import pygfuse.conv
from pygfuse.hag.attach import attach
from pygfuse.transforms import find_hag
from tests.support.parity import Parity, random_edges

NODES = 20


def edges_with_hag(seed: int = 0, loops: bool = False):
    edge_index = random_edges(NODES, NODES, 160, seed)
    edge_index = edge_index if loops else edge_index[:, edge_index[0] != edge_index[1]]
    hag = find_hag(edge_index, NODES, capacity=None)
    assert hag.num_aggregation_nodes > 0
    attach(edge_index, hag)
    return edge_index


def inputs():
    return torch.randn(NODES, 6, generator=torch.Generator().manual_seed(3))


LAYERS = [
    ('SAGEConv', {'in_channels': 6, 'out_channels': 4}),
    ('SAGEConv', {'in_channels': 6, 'out_channels': 4, 'aggr': 'max'}),
    ('SAGEConv', {'in_channels': 6, 'out_channels': 4, 'aggr': 'min', 'project': True}),
    ('GraphConv', {'in_channels': 6, 'out_channels': 4}),
    ('GINConv', {'nn': torch.nn.Linear(6, 4), 'train_eps': True}),
    ('GCNConv', {'in_channels': 6, 'out_channels': 6}),
    ('GCNConv', {'in_channels': 6, 'out_channels': 6, 'add_self_loops': False}),
    ('GCNConv', {'in_channels': 6, 'out_channels': 6, 'normalize': False, 'aggr': 'mean'}),
]


@pytest.mark.parametrize(('name', 'options'), LAYERS, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_layers_that_use_it(name, options, flow):
    edge_index = edges_with_hag()
    parity = Parity(getattr(pyg, name), getattr(pygfuse.conv, name))
    parity.check({**options, 'flow': flow}, x=inputs(), edge_index=edge_index, narrow=False)
    fused = parity.make({**options, 'flow': flow})[1]
    fused(inputs(), edge_index)
    assert fused.note.hag == 'used'
    assert 'yes, over a HAG' in str(pygfuse.report(fused))
    fused(inputs(), edge_index.clone())
    assert fused.note.hag is None


WITHOUT = [
    ('GATConv', {'in_channels': 6, 'out_channels': 4}, {}, 'plain'),
    ('GraphConv', {'in_channels': 6, 'out_channels': 4}, {'edge_weight': True}, 'weights'),
    ('GCNConv', {'in_channels': 6, 'out_channels': 4}, {'edge_weight': True}, 'weights'),
    ('GCNConv', {'in_channels': 6, 'out_channels': 4, 'aggr': 'mean'}, {}, 'aggr'),
]


@pytest.mark.parametrize(('name', 'options', 'extra', 'reason'), WITHOUT, ids=lambda value: str(value)[:60])
def test_layers_that_ignore_it_say_so(name, options, extra, reason):
    edge_index = edges_with_hag()
    given = {key: torch.rand(edge_index.shape[1]) for key in extra}
    parity = Parity(getattr(pyg, name), getattr(pygfuse.conv, name))
    parity.check(options, x=inputs(), edge_index=edge_index, narrow=False, **given)
    fused = parity.make(options)[1]
    fused(inputs(), edge_index, **given)
    (row,) = pygfuse.report(fused)
    assert reason in row.hag
    assert row.why_not is None


def test_self_loops_of_the_graph_that_gcn_replaces():
    edge_index = edges_with_hag(loops=True)
    assert bool((edge_index[0] == edge_index[1]).any())
    parity = Parity(pyg.GCNConv, pygfuse.conv.GCNConv)
    options = {'in_channels': 6, 'out_channels': 6}
    parity.check(options, x=inputs(), edge_index=edge_index, narrow=False)
    fused = parity.make(options)[1]
    fused(inputs(), edge_index)
    assert 'self-loops' in fused.note.hag


def test_other_numbers_of_nodes():
    edge_index = edges_with_hag()
    fused = pygfuse.conv.SAGEConv(6, 4)
    plain = pyg.SAGEConv(6, 4)
    plain.load_state_dict(fused.state_dict())
    x = torch.randn(NODES + 3, 6)
    torch.testing.assert_close(fused(x, edge_index), plain(x, edge_index))
    assert 'not 23 and 23' in fused.note.hag


def test_a_hag_of_other_edges_is_refused():
    edge_index = edges_with_hag()
    with pytest.raises(ValueError, match="'hag'"):
        attach(edge_index[:, 1:].contiguous(), find_hag(edge_index, NODES))


def test_compiled_by_torch():
    edge_index = edges_with_hag()
    fused = pygfuse.conv.SAGEConv(6, 4)
    expected = fused(inputs(), edge_index)
    found = torch.compile(fused, fullgraph=True, backend='aot_eager')(inputs(), edge_index)
    torch.testing.assert_close(found, expected)
