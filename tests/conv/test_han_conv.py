from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import SparseTensor

import pygfuse
from pygfuse.conv import HANConv
from pygfuse.memory import saved_bytes
from tests.conv.test_hgt_conv import EDGES, METADATA, NODES, WIDTHS, edges, features
from tests.support.parity import Parity, random_edges

PARITY = Parity(pyg.HANConv, HANConv)
OPTIONS = {'in_channels': 8, 'out_channels': 8, 'metadata': METADATA, 'heads': 2}


def dense_edges() -> dict[tuple[str, str, str], torch.Tensor]:
    """Several edges between most pairs of nodes."""
    return {
        kind: random_edges(NODES[kind[0]], NODES[kind[-1]], 60 * count, seed)
        for seed, (kind, count) in enumerate(EDGES.items())
    }


def check(options=None, **arguments) -> None:
    given = {'x_dict': features(), 'edge_index_dict': edges(), 'return_semantic_attention_weights': True, **arguments}
    PARITY.check({**OPTIONS, **(options or {})}, **given)


# each compiles kernels of its own
SHAPES = [{'heads': 4, 'out_channels': 64}, {'out_channels': 9, 'heads': 3}, {'heads': 8}]


@pytest.mark.parametrize('edges', [edges, dense_edges])
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'heads': 1},
        {'negative_slope': 0.5},
        *(pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES),
    ],
    ids=str,
)
def test_options(options, edges):
    check(options, edge_index_dict=edges())


def test_without_weights():
    check(return_semantic_attention_weights=False)


def test_widths_by_type():
    check({'in_channels': WIDTHS}, x_dict=features(WIDTHS))
    check({'in_channels': -1}, x_dict=features(WIDTHS))


def test_types_without_edges_or_nodes():
    given = edges()
    check(edge_index_dict=dict([*given.items()][1::2]))
    check(edge_index_dict=dict([*given.items()][::-1]))
    check(edge_index_dict={('author', 'reviews', 'paper'): given['author', 'reviews', 'paper']})
    x = {**features(), 'venue': torch.randn(0, 8)}
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    check(x_dict=x, edge_index_dict={**given, ('paper', 'in', 'venue'): nothing, ('venue', 'lists', 'paper'): nothing})


def test_sparse_tensors(needs_torch_sparse):
    given = {
        kind: SparseTensor(row=pair[1], col=pair[0], sparse_sizes=(NODES[kind[-1]], NODES[kind[0]]))
        for kind, pair in edges().items()
    }
    check(edge_index_dict=given)


@pytest.mark.parametrize('dtype', [torch.int32, torch.uint8])
def test_narrow_indices(dtype):
    plain, fused = PARITY.make(OPTIONS)
    torch.testing.assert_close(fused(features(), edges(dtype)), plain(features(), edges()))
    assert fused.note.reason is None


def test_many_types_of_few_edges():
    types = [('a', str(number), 'b') for number in range(140)]
    given = {kind: random_edges(9, 30, number % 5, number) for number, kind in enumerate(types)}
    x = {'a': torch.randn(9, 8), 'b': torch.randn(30, 8)}
    check({'metadata': (['a', 'b'], types)}, x_dict=x, edge_index_dict=given)


def test_writes_are_noticed():
    plain, fused = PARITY.make(OPTIONS)
    given = edges()
    fused(features(), given)
    given['paper', 'in', 'venue'][0, 3] = 2
    given['author', 'writes', 'paper'][1, :5] = 1
    torch.testing.assert_close(fused(features(), given), plain(features(), given))


def test_what_is_saved_does_not_grow_with_edges_times_width():
    saved = []
    for factor in (20, 40):
        fused = PARITY.make({**OPTIONS, 'out_channels': 64})[1]
        given = {kind: random_edges(NODES[kind[0]], NODES[kind[-1]], count * factor) for kind, count in EDGES.items()}
        x = {kind: rows.requires_grad_() for kind, rows in features().items()}
        fused(x, given)
        saved.append(saved_bytes(lambda f=fused, x=x, e=given: sum(o.sum() for o in f(x, e).values())))
        assert fused.note.reason is None
    # the score of an edge's source for each head, and where it comes from
    assert saved[1] - saved[0] <= (4 * 2 + 8) * 20 * sum(EDGES.values())


def test_dropout_is_of_weights():
    torch.manual_seed(0)
    conv = HANConv(4, 1, (['a', 'b'], [('a', 'to', 'b')]), dropout=0.5)
    x = {'a': torch.ones(1000, 4), 'b': torch.ones(1, 4)}
    given = {('a', 'to', 'b'): torch.stack([torch.arange(1000), torch.zeros(1000, dtype=torch.int64)])}
    with torch.no_grad():
        conv.proj['a'].weight.fill_(1.0)
        conv.proj['a'].bias.zero_()
        first, second = conv(x, given)['b'].item(), conv(x, given)['b'].item()
        assert conv.note.reason is None
        # all messages are 4, all weights 1/1000, of which half are doubled
        assert first != second
        assert first == pytest.approx(4, rel=0.15)
        assert conv.eval()(x, given)['b'].item() == pytest.approx(4)


def test_gradients_and_their_gradients():
    torch.manual_seed(0)
    metadata = (['a', 'b'], [('a', 'to', 'b'), ('b', 'to', 'b')])
    conv = HANConv(3, 4, metadata, heads=2).double()
    given = {kind: random_edges(3, 3, 7, seed) for seed, kind in enumerate(metadata[1])}
    parameters = {name: p for name, p in conv.named_parameters() if name != 'k_lin.weight'}

    def function(a, b, *values):
        found = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(conv, found, ({'a': a, 'b': b}, given))['b']

    x = [torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(function, (*x, *parameters.values()))
    assert torch.autograd.gradgradcheck(function, (*x, *parameters.values()))
    assert conv.note.reason is None


def test_active_rows():
    conv = PARITY.make(OPTIONS)[1]
    mask = torch.arange(NODES['paper']) < 4
    x = {kind: rows.requires_grad_() for kind, rows in features().items()}
    expected = conv(conv(x, edges()), edges())['paper'][mask]
    with pygfuse.active(mask):
        found = conv(conv(x, edges()), edges())['paper']
    torch.testing.assert_close(found[mask], expected)
    leaves = *x.values(), *conv.parameters()
    gradients = [
        torch.autograd.grad(out.square().sum(), leaves, allow_unused=True, materialize_grads=True)
        for out in (expected, found[mask])
    ]
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({('paper', 'in', 'venue'): torch.tensor([[0], [4]])}, 'holds node 4 at position 0'),
        ({('paper', 'in', 'venue'): [[0], [1]]}, "'edge_index' to be a tensor"),
        ({('paper', 'in', 'nothing'): torch.zeros(2, 0, dtype=torch.int64)}, "to hold 'nothing'"),
        ({('paper', 'on', 'venue'): torch.zeros(2, 0, dtype=torch.int64)}, "got \\('paper', 'on', 'venue'\\)"),
    ],
)
def test_bad_input(change, message):
    conv = HANConv(8, 8, METADATA, heads=2)
    with pytest.raises(ValueError, match=message):
        conv(features(), {**edges(), **change})


def test_what_is_not_fused_runs_pyg_and_says_so():
    plain, conv = PARITY.make(OPTIONS)
    conv.k_lin.register_forward_hook(lambda *given: None)
    torch.testing.assert_close(conv(features(), edges()), plain(features(), edges()))
    assert conv.note.reason == 'a hook is registered on k_lin'


def test_fuse_swaps_it():
    assert type(pygfuse.fuse(pyg.HANConv(8, 8, METADATA))) is HANConv


@pytest.mark.usefixtures('by_pyg')
def test_few_edges_run_pyg_s_path():
    torch.manual_seed(0)
    plain = pyg.HANConv(**OPTIONS)
    conv = pygfuse.fuse(copy.deepcopy(plain))
    torch.testing.assert_close(conv(features(), edges()), plain(features(), edges()))
    assert conv.note.reason == 'so few edges that a row for each takes less'
    many = {kind: random_edges(NODES[kind[0]], NODES[kind[-1]], 10_000) for kind in EDGES}
    torch.testing.assert_close(conv(features(), many), plain(features(), many))
    assert conv.note.reason is None
