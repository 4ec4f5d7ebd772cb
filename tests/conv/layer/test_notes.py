"""What a layer knows of its last call, and nothing of what others run."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data

import pygfuse
from pygfuse import execution_paths
from pygfuse._lib.modes import modes
from pygfuse.conv import (
    AGNNConv,
    CGConv,
    EdgeConv,
    FAConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GMMConv,
    GraphConv,
    ResGatedGraphConv,
    SAGEConv,
    TransformerConv,
)
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.transforms import ToHAG
from tests.support.parity import random_edges

WIDTH, NODES = 8, 40
EDGE_INDEX = random_edges(NODES, NODES, 300)
LAYERS = {
    'AGNN': lambda: AGNNConv(),
    'CG': lambda: CGConv(WIDTH),
    'Edge': lambda: EdgeConv(torch.nn.Linear(2 * WIDTH, WIDTH)),
    'FA': lambda: FAConv(WIDTH),
    'GAT': lambda: GATConv(WIDTH, WIDTH),
    'GATv2': lambda: GATv2Conv(WIDTH, WIDTH),
    'GCN': lambda: GCNConv(WIDTH, WIDTH),
    'GIN': lambda: GINConv(torch.nn.Linear(WIDTH, WIDTH)),
    'GINE': lambda: GINEConv(torch.nn.Linear(WIDTH, WIDTH)),
    'GMM': lambda: GMMConv(WIDTH, WIDTH, dim=2, kernel_size=2),
    'GMM, separate': lambda: GMMConv(WIDTH, WIDTH, dim=2, kernel_size=2, separate_gaussians=True),
    'Graph': lambda: GraphConv(WIDTH, WIDTH),
    'ResGated': lambda: ResGatedGraphConv(WIDTH, WIDTH),
    'SAGE': lambda: SAGEConv(WIDTH, WIDTH),
    'Transformer': lambda: TransformerConv(WIDTH, WIDTH),
}
EDGE_WIDTHS = {'GINE': WIDTH, 'GMM': 2, 'GMM, separate': 2}


def call(name: str, conv, x: torch.Tensor) -> torch.Tensor:
    first = (x, x) if name == 'FA' else (x,)
    width = EDGE_WIDTHS.get(name)
    return conv(*first, EDGE_INDEX, *([] if width is None else [torch.rand(EDGE_INDEX.shape[1], width)]))


def own_aggregation(x: torch.Tensor) -> torch.Tensor:
    return aggregate(NEIGHBOURS, Edges(EDGE_INDEX, NODES, NODES), {'x': x}, 1, WIDTH).flatten(1)


def features() -> torch.Tensor:
    return torch.randn(NODES, WIDTH, requires_grad=True)


@pytest.mark.parametrize('name', LAYERS)
def test_an_aggregation_of_ones_own_leaves_a_layers_note_alone(name):
    conv = LAYERS[name]()
    with execution_paths(True):
        call(name, conv, features())[:3].sum().backward()
        walked = conv.note.backward
        assert walked.rows == 3
        own_aggregation(features())[:9].sum().backward()
    assert conv.note.backward is walked
    assert modes().note is None


def test_an_aggregation_of_ones_own_within_active_rows_leaves_a_layers_note_alone():
    conv, mask = SAGEConv(WIDTH, WIDTH), torch.arange(NODES) < 3
    with pygfuse.active(mask):
        out = conv(features(), EDGE_INDEX)
        other = own_aggregation(features() * 1.0)
        out = out[mask]
        computed = conv.note.forward
        other[torch.arange(NODES) < 9]
    assert computed.rows == 3
    assert conv.note.forward is computed


def test_a_call_that_fails_ends_its_note():
    conv = GINEConv(torch.nn.Linear(WIDTH, WIDTH))
    with pytest.raises(ValueError, match='edge_attr'):
        conv(features(), EDGE_INDEX, torch.rand(7, WIDTH))
    assert modes().note is None


def test_layers_in_turn_have_notes_of_their_own():
    first, second = SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH)
    with execution_paths(True):
        second(first(features(), EDGE_INDEX), EDGE_INDEX)[:3].sum().backward()
    assert first.note.backward.rows > second.note.backward.rows == 3


@pytest.mark.parametrize('copied', [copy.deepcopy, copy.copy, lambda conv: pickle.loads(pickle.dumps(conv))])
def test_copies_begin_with_an_empty_note(copied):
    conv = SAGEConv(WIDTH, WIDTH)
    with execution_paths(True):
        conv(features(), EDGE_INDEX)[:3].sum().backward()
    assert b'note' not in pickle.dumps(conv)
    twin = copied(conv)
    (row,) = pygfuse.report(twin)
    assert (row.backward, row.hag, row.forward) == (None, None, None)
    with execution_paths(True):
        twin(features(), EDGE_INDEX)[:5].sum().backward()
    assert (conv.note.backward.rows, twin.note.backward.rows) == (3, 5)


def test_a_layer_that_is_one_of_pygs_again_keeps_no_note():
    conv = pygfuse.fuse(pyg.SAGEConv(WIDTH, WIDTH))
    conv(features(), EDGE_INDEX, size=None)
    assert conv.note.reason is None
    assert set(pygfuse.unfuse(conv).__dict__) == set(pyg.SAGEConv(WIDTH, WIDTH).__dict__)
    assert b'pygfuse' not in pickle.dumps(conv)


def test_backward_keeps_no_layer_alive():
    conv = SAGEConv(WIDTH, WIDTH)
    note = weakref.ref(conv.note)
    out = conv(features(), EDGE_INDEX)
    del conv
    gc.collect()
    assert note() is None
    with execution_paths(True):
        out[:3].sum().backward()


def test_the_report_reads_the_note():
    hub = torch.cartesian_prod(torch.arange(30), torch.arange(30)).t()
    data = ToHAG(for_batches=True, min_saving=1)(Data(edge_index=hub, num_nodes=30))
    conv, mask = SAGEConv(WIDTH, WIDTH), torch.arange(30) < 3
    conv(torch.randn(30, WIDTH), data.edge_index)
    (row,) = pygfuse.report(conv)
    assert (row.hag, row.forward, row.backward) == (conv.note.hag, None, None)
    assert row.hag is not None
    with pygfuse.active(mask):
        out = conv(torch.randn(30, WIDTH), data.edge_index)
        out = out[mask]
    (row,) = pygfuse.report(conv)
    assert row.forward.rows == 3
    assert row.hag == 'only some rows are computed'
