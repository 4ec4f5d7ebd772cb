"""Walks along one block of edges after another have the numbers of walks along all of them."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
from pygfuse.cpu import row_sums
from pygfuse.cpu.edges import turns
from pygfuse.cpu.edges.edge_blocks import in_blocks
from pygfuse.cpu.nodes.rows import filled
from pygfuse.graph.csr import Csr
from pygfuse.mapping import blocks
from pygfuse.mapping.mapping import force_mapping

NODES, EDGES, WIDTH = 300, 20_000, 8
LAYERS = {
    'sum': lambda: pyg.GINConv(torch.nn.Identity()),
    'mean': lambda: pyg.SAGEConv(WIDTH, WIDTH),
    'maximum': lambda: pyg.GraphConv(WIDTH, WIDTH, aggr='max'),
    'minimum': lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr='min'),
    'weights of edges': lambda: pyg.GCNConv(WIDTH, WIDTH),
    'scores of heads': lambda: pyg.GATConv(WIDTH, 4, heads=2, dropout=0.3),
    'many heads': lambda: pyg.GATConv(WIDTH, 4, heads=40),
    'scores of channels': lambda: pyg.GATv2Conv(WIDTH, 4, heads=2, dropout=0.3),
    'keys and values': lambda: pyg.TransformerConv(WIDTH, 16, heads=2),
    'cosines': lambda: pyg.AGNNConv(),
    'gates': lambda: pyg.ResGatedGraphConv(WIDTH, WIDTH),
    'maximum of both ends': lambda: pyg.EdgeConv(torch.nn.Linear(2 * WIDTH, WIDTH)),
}


@pytest.fixture(autouse=True)
def _large(monkeypatch):
    """Graphs of this size are walked as sorted ones, and gather more than a cache holds."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    monkeypatch.setattr('pygfuse.cpu.few_edges.single_part.THREAD_WORK', 0)
    monkeypatch.setattr(blocks, 'BLOCK_BYTES', 4 * NODES)
    monkeypatch.setattr(blocks, 'WIDER', 1_000)
    monkeypatch.setattr(blocks, 'WIDER_OF_MANY', 1_000)


@pytest.fixture
def edge_index() -> Tensor:
    """Nodes of very different degrees, edges more than once, loops, and the last nodes without any."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.rand(2, EDGES, generator=generator) ** torch.tensor([[1.5], [1.2]])
    return (drawn * (NODES - 20)).long()


def results(layer, x: Tensor, edge_index: Tensor, *given: Tensor) -> list[Tensor]:
    torch.manual_seed(7)
    out = layer(x, edge_index, *given)
    leaves = [x, *layer.parameters(), *given]
    found = torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True)
    return [out, *(torch.zeros(()) if grad is None else grad for grad in found)]


def counted(monkeypatch) -> list[int]:
    """How many blocks there were, whenever some were asked for."""
    found: list[int] = []

    def in_blocks_counted(csr, num_others, count, with_ids):
        found.append(count)
        return in_blocks(csr, num_others, count, with_ids)

    monkeypatch.setattr(turns, 'in_blocks', in_blocks_counted)
    return found


@pytest.mark.parametrize('name', LAYERS)
def test_the_numbers_of_all_edges_at_once(name, edge_index, monkeypatch):
    torch.manual_seed(1)
    layer = pygfuse.fuse(LAYERS[name]().double())
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    given = (torch.rand(EDGES, dtype=torch.float64, requires_grad=True),) if name == 'weights of edges' else ()
    with force_mapping('vertex'):
        expected = results(layer, x, edge_index.clone(), *given)
    asked = counted(monkeypatch)
    found = results(layer, x, edge_index, *given)
    assert len(asked) >= 2, asked
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(('width', 'walks'), [(512, 2), (300, 0)])
def test_rows_in_tiles(width, walks, edge_index, monkeypatch):
    layer = pygfuse.fuse(pyg.GINConv(torch.nn.Identity()).double())
    x, tiled = torch.randn(NODES, width, dtype=torch.float64, requires_grad=True), []
    with force_mapping('vertex'):
        expected = results(layer, x, edge_index.clone())
    monkeypatch.setattr(row_sums, '_settle', lambda *given: tiled.append(given))
    torch.testing.assert_close(results(layer, x, edge_index), expected)
    # tiles that have channels in common would both add to them
    assert len(tiled) == walks


@pytest.mark.parametrize('name', ['sum', 'maximum', 'scores of heads', 'scores of channels'])
def test_the_same_bits_on_any_number_of_threads(name, edge_index):
    layer, x = pygfuse.fuse(LAYERS[name]()), torch.randn(NODES, WIDTH, requires_grad=True)
    expected, threads = results(layer, x, edge_index), torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            torch.testing.assert_close(results(layer, x, edge_index.clone()), expected, rtol=0, atol=0)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('of_all', [True, False])
def test_scores_that_rise_from_block_to_block(of_all):
    layer = pygfuse.fuse(pyg.GATConv(1, 1, add_self_loops=False, bias=False).double())
    for parameter in layer.parameters():
        parameter.data.fill_(1.0)
    x = torch.linspace(-3_000.0, 3_000.0, NODES, dtype=torch.float64).unsqueeze(1)
    if not of_all:
        # one node, which comes first in its block, weighs as much as all others together
        x = torch.ones_like(x).index_fill_(0, torch.tensor(3 * NODES // 4), 10.0)
    x.requires_grad_()
    edge_index = torch.cartesian_prod(torch.arange(NODES), torch.arange(50)).t().contiguous()
    with force_mapping('vertex'):
        expected = results(layer, x, edge_index.clone())
    torch.testing.assert_close(results(layer, x, edge_index), expected)


def test_rows_that_are_not_numbers(edge_index):
    layer = pygfuse.fuse(pyg.GraphConv(WIDTH, WIDTH, aggr='max').double())
    x = torch.randn(NODES, WIDTH, dtype=torch.float64)
    x[5], x[200] = torch.nan, torch.inf
    x.requires_grad_()
    with force_mapping('vertex'):
        expected = results(layer, x, edge_index.clone())
    torch.testing.assert_close(results(layer, x, edge_index), expected, equal_nan=True)


def test_a_row_that_would_lie_in_several_parts(monkeypatch):
    layer = pygfuse.fuse(pyg.GATConv(1, 1, add_self_loops=False).double())
    x = torch.randn(NODES, 1, dtype=torch.float64, requires_grad=True)
    sources = torch.randint(NODES, (40_000,))
    edge_index = torch.stack([sources, torch.where(torch.rand(40_000) < 0.9, 0, sources)])
    with force_mapping('vertex'):
        expected = results(layer, x, edge_index.clone())
    asked = counted(monkeypatch)
    # two threads would go on with its state at once
    monkeypatch.setattr(row_sums, '_settle', None)
    torch.testing.assert_close(results(layer, x, edge_index), expected)
    assert asked


def test_two_sides_of_other_sizes(monkeypatch):
    layer = pygfuse.fuse(pyg.GATv2Conv((WIDTH, WIDTH), 4, heads=2, add_self_loops=False).double())
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    edge_index = torch.stack([torch.randint(NODES, (EDGES,)), torch.randint(100, (EDGES,))])

    def both(edge_index: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(layer((x, x[:100]), edge_index).sin().sum(), [x, *layer.parameters()]))

    with force_mapping('vertex'):
        expected = both(edge_index.clone())
    asked = counted(monkeypatch)
    torch.testing.assert_close(both(edge_index), expected)
    assert asked


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
@pytest.mark.parametrize('with_ids', [False, True])
def test_blocks_hold_all_edges_in_their_order(dtype, with_ids, edge_index):
    order = edge_index[1].argsort(stable=True)
    degree = torch.bincount(edge_index[1], minlength=NODES)
    indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)]).to(dtype)
    csr = Csr(indptr, edge_index[0][order].to(dtype), order.to(dtype))
    found = in_blocks(csr, NODES, 7, with_ids)
    size = -(-NODES // 7)
    rows = csr.rows()
    for block, edges in enumerate(found):
        of_block = csr.index // size == block
        assert torch.equal(edges.index, csr.index[of_block])
        assert torch.equal(edges.rows(), rows[of_block])
        assert edges.index.dtype == edges.indptr.dtype == dtype
        assert torch.equal(edges.edge_id, csr.edge_id[of_block]) if with_ids else edges.edge_id is None
    assert in_blocks(csr, NODES, 7, with_ids) is found


@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
def test_blocks_are_made_in_a_forked_child():
    rows = 50_000
    # torch's threads are running by now, and a child has none of them
    csr = Csr(torch.arange(rows + 1) * 4, torch.arange(4 * rows).flip(0) % rows, None)
    expected = [block.index for block in in_blocks(csr, rows, 3, True)]
    child = multiprocessing.get_context('fork').Process(target=_same_blocks, args=(csr, rows, expected))
    child.start()
    try:
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()


def _same_blocks(csr: Csr, rows: int, expected: list[Tensor]) -> None:
    found = in_blocks(Csr(csr.indptr, csr.index, None), rows, 3, True)
    assert all(block.index.tolist() == index.tolist() for block, index in zip(found, expected, strict=True))
    filled(torch.empty(4 * rows), 1.0)
