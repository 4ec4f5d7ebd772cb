from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import SparseTensor

import pygfuse
from pygfuse.conv import HGTConv
from pygfuse.graph.joined import Part, joined
from pygfuse.memory import saved_bytes
from tests.support.parity import Parity, random_edges

PARITY = Parity(pyg.HGTConv, HGTConv)
NODES = {'paper': 30, 'author': 17, 'venue': 4}
EDGES = {
    ('author', 'writes', 'paper'): 70,
    ('paper', 'cites', 'paper'): 50,
    ('paper', 'in', 'venue'): 30,
    ('paper', 'by', 'author'): 25,
    ('author', 'reviews', 'paper'): 0,
    ('venue', 'lists', 'paper'): 9,
}
METADATA = ([*NODES], [*EDGES])
WIDTHS = {'paper': 8, 'author': 5, 'venue': 3}


def features(widths=None) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    widths = widths or dict.fromkeys(NODES, 8)
    return {kind: torch.randn(count, widths[kind], generator=generator) for kind, count in NODES.items()}


def edges(dtype=torch.int64) -> dict[tuple[str, str, str], torch.Tensor]:
    return {
        kind: random_edges(NODES[kind[0]], NODES[kind[-1]], count, seed).to(dtype)
        for seed, (kind, count) in enumerate(EDGES.items())
    }


def check(options=None, **arguments) -> None:
    options = {'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2, **(options or {})}
    PARITY.check(options, **{'x_dict': features(), 'edge_index_dict': edges(), **arguments})


@pytest.mark.parametrize(
    'options',
    [{}, {'heads': 1}, {'heads': 4, 'out_channels': 16}, {'heads': 1, 'out_channels': 64}],
    ids=str,
)
def test_options(options):
    check(options)


def test_widths_by_type():
    check({'in_channels': WIDTHS}, x_dict=features(WIDTHS))


def test_types_without_edges():
    given = edges()
    check(edge_index_dict=dict([*given.items()][1::2]))
    check(edge_index_dict={('author', 'reviews', 'paper'): given['author', 'reviews', 'paper']})


def test_nodes_in_another_order():
    x, widths = features(), features(WIDTHS)
    check(x_dict=dict([*x.items()][::-1]))
    check({'in_channels': WIDTHS}, x_dict=dict([*widths.items()][::-1]))


def test_features_that_are_wider_than_outputs():
    """More sources have edges than there are nodes: their features are mapped by types of nodes first."""
    check({'in_channels': 64}, x_dict=features(dict.fromkeys(NODES, 64)))


def test_types_in_another_order():
    """PyG takes them for sorted as in the metadata."""
    plain, fused = PARITY.make({'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2})
    expected = plain(features(), edges())
    torch.testing.assert_close(fused(features(), dict([*edges().items()][::-1])), expected)


def test_a_lazy_layer():
    fused = HGTConv(-1, 8, METADATA, heads=2)
    assert fused(features(WIDTHS), edges())['paper'].shape == (30, 8)
    check({'in_channels': -1}, x_dict=features(WIDTHS))


@pytest.mark.parametrize('dtype', [torch.int32, torch.uint8])
def test_narrow_indices(dtype):
    plain, fused = PARITY.make({'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2})
    expected, found = plain(features(), edges()), fused(features(), edges(dtype))
    torch.testing.assert_close(found, expected)
    assert fused.note.reason is None


def test_sparse_tensors(needs_torch_sparse):
    given = {
        kind: SparseTensor(row=pair[1], col=pair[0], sparse_sizes=(NODES[kind[-1]], NODES[kind[0]]))
        for kind, pair in edges().items()
    }
    # of PyG's these would need as many targets as rows of keys
    plain, fused = PARITY.make({'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2})
    torch.testing.assert_close(fused(features(), given), plain(features(), edges()))
    assert fused.note.reason is None


def test_a_model_of_two_layers():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList(pyg.HGTConv(8, 8, METADATA, heads=2) for _ in range(2))

        def forward(self, x, edge_index):
            for conv in self.convs:
                x = conv(x, edge_index)
            return x['venue']

    torch.manual_seed(0)
    model, given = Model(), edges()
    expected = model(features(), given)
    fused = pygfuse.fuse(model)
    torch.testing.assert_close(fused(features(), given), expected)
    assert [type(conv) for conv in fused.convs] == [HGTConv, HGTConv]


def test_writes_are_noticed():
    plain, fused = PARITY.make({'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2})
    given = edges()
    fused(features(), given)
    for kind in (('author', 'writes', 'paper'), ('paper', 'in', 'venue')):
        given[kind][0, 3] = 2
        given[kind][1, :5] = 1
        torch.testing.assert_close(fused(features(), given), plain(features(), given))
    given['paper', 'cites', 'paper'] = given['paper', 'cites', 'paper'].flip(1)[:, 10:]
    torch.testing.assert_close(fused(features(), given), plain(features(), given))


def test_edges_are_joined_once_and_go_with_them():
    given = [torch.tensor([[0, 1], [0, 0]]), torch.tensor([[0], [1]])]

    def parts():
        return [Part(given[0], 2, 1, 0, 2), Part(given[1], 2, 2, 0, 0)]

    graph, relations = joined(parts(), 3)
    assert joined(parts(), 3)[0] is graph
    assert joined(parts(), 3)[1] is relations
    gone = weakref.ref(graph)
    del graph, relations
    given.clear()
    gc.collect()
    assert gone() is None


def test_what_is_saved_does_not_grow_with_edges():
    saved = []
    for factor in (20, 40):
        fused = PARITY.make({'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2})[1]
        given = {kind: random_edges(NODES[kind[0]], NODES[kind[-1]], count * factor) for kind, count in EDGES.items()}
        x = {kind: rows.requires_grad_() for kind, rows in features().items()}
        fused(x, given)
        saved.append(saved_bytes(lambda f=fused, x=x, e=given: sum(o.sum() for o in f(x, e).values())))
        assert fused.note.reason is None
    # what stands for the edges
    assert saved[0] == saved[1]


def test_gradients():
    torch.manual_seed(0)
    metadata = (['a', 'b'], [('a', 'to', 'b'), ('b', 'to', 'b')])
    conv = HGTConv(3, 4, metadata, heads=2).double()
    given = {kind: random_edges(3, 3, 7, seed) for seed, kind in enumerate(metadata[1])}
    parameters = {name: p for name, p in conv.named_parameters() if 'rel' in name or 'kqv' in name}

    def function(a, b, *values):
        found = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(conv, found, ({'a': a, 'b': b}, given))['b']

    x = [torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(function, (*x, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (*x, *parameters.values()))
    assert conv.note.reason is None


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({('paper', 'in', 'venue'): torch.tensor([[0], [4]])}, 'holds node 4 at position 0'),
        ({('paper', 'in', 'venue'): [[0], [1]]}, "'edge_index' to be a tensor"),
        ({('paper', 'in', 'nothing'): torch.zeros(2, 0, dtype=torch.int64)}, "to hold 'nothing'"),
    ],
)
def test_bad_input(change, message):
    conv = HGTConv(8, 8, METADATA, heads=2)
    with pytest.raises(ValueError, match=message):
        conv(features(), {**edges(), **change})


def test_what_is_not_fused_runs_pyg_and_says_so():
    conv = HGTConv(8, 8, METADATA, heads=2)
    conv.k_rel.register_forward_hook(lambda *given: None)
    conv(features(), edges())
    assert 'k_rel' in conv.note.reason
    conv = HGTConv(8, 8, METADATA, heads=2)
    with torch.autocast('cpu', torch.bfloat16):
        conv(features(), edges())
    assert conv.note.reason == 'autocast is on'
