"""Programs along few edges as they come: no graph is made, and whatever is not plain takes sorted edges."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import Tensor

import pygfuse
from pygfuse.conv import AGNNConv, GATConv, GATv2Conv, TransformerConv
from pygfuse.graph.graph import Graph
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.library.gine import GINE
from tests.support.parity import random_edges

NODES, EDGES, HEADS, CHANNELS = 9, 40, 2, 3
PROGRAMS = {
    # scores of heads, scores of channels, and none
    'gat': (GAT, {'x': 2, 'alpha_src': 1, 'alpha_dst': 1}, {'negative_slope': 0.2}),
    'gatv2': (GATV2, {'x': 2, 'x_dst': 2, 'att': 0}, {'negative_slope': 0.2}),
    'gine': (GINE, {'x': 2, 'edge': 3}, {}),
}


@pytest.fixture
def no_graph(monkeypatch):
    """Where edges are sorted, a test fails."""

    def fail(*_):
        raise AssertionError('a graph is made')

    monkeypatch.setattr('pygfuse.graph.orders.build', fail)


def leaves(name: str, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {0: (1, HEADS, CHANNELS), 1: (NODES, HEADS), 2: (NODES, HEADS, CHANNELS), 3: (EDGES, HEADS, CHANNELS)}
    kinds = PROGRAMS[name][1].values()
    return [
        torch.randn(shapes[kind], generator=generator, dtype=torch.float64).requires_grad_() for kind in kinds
    ]  # fmt: skip


def run(name: str, tensors: list[Tensor], edge_index: Tensor, reduce: str = 'sum', loops: int | None = None) -> Tensor:
    program, kinds, numbers = PROGRAMS[name]
    operands = dict(zip(kinds, tensors, strict=True)) | numbers
    edges = Edges(edge_index, NODES, NODES, loops=loops)
    return aggregate(program, edges, operands, HEADS, CHANNELS, reduce)


def by_sorted_edges(name: str, tensors: list[Tensor], edge_index: Tensor, **given) -> tuple[Tensor, ...]:
    with pygfuse.force_mapping('vertex'):
        out = run(name, tensors, edge_index, **given)
        return out, *torch.autograd.grad(out, tensors, torch.ones_like(out))


@pytest.mark.parametrize('name', PROGRAMS)
def test_neither_pass_makes_a_graph(name, no_graph):
    tensors, edge_index = leaves(name), random_edges(NODES, NODES, EDGES, 3)
    out = run(name, tensors, edge_index)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), tensors))


@pytest.mark.parametrize('reduce', ['sum', 'mean', 'max', 'min'])
@pytest.mark.parametrize('name', PROGRAMS)
def test_results_are_those_of_sorted_edges(name, reduce):
    if PROGRAMS[name][0].softmax and reduce in ('max', 'min'):
        pytest.skip('a softmax is summed or averaged')
    tensors, edge_index = leaves(name), random_edges(NODES, NODES, EDGES, 3)
    out = run(name, tensors, edge_index, reduce)
    found = out, *torch.autograd.grad(out, tensors, torch.ones_like(out))
    for got, expected in zip(found, by_sorted_edges(name, tensors, edge_index, reduce=reduce), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize('loops', [NODES, NODES - 4, 0])
def test_self_loops_take_the_place_of_others(loops, no_graph):
    edge_index = random_edges(NODES, NODES, EDGES, 3)
    edge_index[1, ::5] = edge_index[0, ::5]
    kept = edge_index[:, edge_index[0] != edge_index[1]]
    written = torch.cat([kept, torch.arange(loops).repeat(2, 1)], dim=1)
    tensors = leaves('gat')
    assert torch.equal(run('gat', tensors, edge_index, loops=loops), run('gat', tensors, written))


def test_edges_that_self_loops_take_the_place_of_have_no_gradient():
    edge_index = random_edges(NODES, NODES, EDGES, 3)
    edge_index[1, ::5] = edge_index[0, ::5]
    x, edge = leaves('gine')
    edge = torch.cat([edge, edge[:NODES]]).detach().requires_grad_()
    found = torch.autograd.grad(run('gine', [x, edge], edge_index, loops=NODES).sum(), edge)[0]
    is_loop = torch.cat([edge_index[0] == edge_index[1], torch.zeros(NODES, dtype=torch.bool)])
    assert not found[is_loop].any()
    expected = by_sorted_edges('gine', [x, edge], edge_index, loops=NODES)[2]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('name', PROGRAMS)
def test_derivatives(name):
    tensors, edge_index = leaves(name), random_edges(NODES, NODES, EDGES, 3)
    assert torch.autograd.gradcheck(lambda *given: run(name, [*given], edge_index), tensors, check_batched_grad=True)
    if name != 'gine':
        assert torch.autograd.gradgradcheck(lambda *given: run(name, [*given], edge_index), tensors)


def test_no_thread_is_woken(monkeypatch):
    monkeypatch.setattr('pygfuse.cpu.compilation.team.run', None)
    tensors, edge_index = leaves('gatv2'), random_edges(NODES, NODES, EDGES, 3)
    run('gatv2', tensors, edge_index).sum().backward()


ATTENTION = [GATConv(8, 4, heads=2), GATv2Conv(8, 4, heads=2), TransformerConv(8, 4, heads=2), AGNNConv()]


@pytest.mark.parametrize('conv', ATTENTION, ids=lambda conv: type(conv).__name__)
def test_a_call_has_the_same_bits_each_time(conv):
    conv, x = copy.deepcopy(conv), torch.randn(NODES, 8, requires_grad=True)
    edge_index = random_edges(NODES, NODES, EDGES, 3)
    found = []
    for turn in range(4):
        if turn == 2:
            Graph.of(edge_index, num_sources=NODES, num_targets=NODES).csc  # noqa: B018
        out = conv(x, edge_index if turn < 3 else edge_index.clone())
        found.append((out, *torch.autograd.grad(out.sum(), [x, *conv.parameters()])))
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


def test_what_is_said_is_of_sorted_edges(monkeypatch):
    monkeypatch.setattr('pygfuse.cpu.few_edges.listed_walks.Walks.forward', None)
    tensors, edge_index = leaves('gat'), random_edges(NODES, NODES, EDGES, 3)
    for block in (pygfuse.force_mapping('edge'), pygfuse.used_once(), pygfuse.ablation(recomputation=False)):
        with block:
            run('gat', tensors, edge_index)


@pytest.mark.parametrize('on', [True, False])
def test_backward_within_a_block(on):
    tensors, edge_index = leaves('gat'), random_edges(NODES, NODES, EDGES, 3)
    expected = torch.autograd.grad(run('gat', tensors, edge_index)[:3].sum(), tensors)
    out = run('gat', tensors, edge_index)[:3].sum()
    with pygfuse.execution_paths(on):
        found = torch.autograd.grad(out, tensors)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_wide_rows_are_walked_by_row(monkeypatch):
    monkeypatch.setattr('pygfuse.cpu.few_edges.listed_walks.Walks.write_forward', None)
    few, width = 5_000, 2**9  # ten million bytes of rows; along as many edges narrow rows are walked as they come
    conv = GATConv(8, width, heads=1)
    assert conv(torch.randn(NODES, 8), random_edges(NODES, NODES, few, 3)).shape == (NODES, width)
    with pytest.raises(TypeError, match='NoneType'):
        GATConv(8, 8, heads=1)(torch.randn(NODES, 8), random_edges(NODES, NODES, few, 3))


@pytest.mark.parametrize('kind', ['int32', 'transposed'])
def test_other_lists_are_sorted(kind, monkeypatch):
    monkeypatch.setattr('pygfuse.cpu.few_edges.listed_walks.Walks.forward', None)
    edge_index = random_edges(NODES, NODES, EDGES, 3)
    edge_index = edge_index.int() if kind == 'int32' else edge_index.t().contiguous().t()
    run('gat', leaves('gat'), edge_index)


def test_a_list_made_in_inference_mode():
    conv, x = GATConv(8, 4), torch.randn(NODES, 8)
    with torch.inference_mode():
        edge_index = random_edges(NODES, NODES, EDGES, 3) + 0
    for _ in range(3):
        conv(x, edge_index).sum().backward()


@pytest.mark.parametrize('with_grad', [True, False])
@pytest.mark.parametrize(('row', 'node'), [(0, -1), (1, NODES), (0, NODES)])
def test_a_node_that_is_not_there(row, node, with_grad):
    edge_index = random_edges(NODES, NODES, EDGES, 3)
    edge_index[row, 17] = node
    tensors = leaves('gat') if with_grad else [tensor.detach() for tensor in leaves('gat')]
    with pytest.raises(ValueError, match=rf'edge_index\[{row}\] holds node {node} at position 17'):
        run('gat', tensors, edge_index, loops=NODES)


def test_edges_that_are_written_to_between_the_passes():
    tensors, edge_index = leaves('gat'), random_edges(NODES, NODES, EDGES, 3)
    out = run('gat', tensors, edge_index)
    edge_index[0, 0] = 1 - edge_index[0, 0]
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


@pytest.mark.parametrize('on', [None, True])
def test_edges_that_hooks_copied_may_be_written_to(on):
    tensors, edge_index = leaves('gat'), random_edges(NODES, NODES, EDGES, 3)
    expected = torch.autograd.grad(run('gat', tensors, edge_index).sum(), tensors)

    def pack(tensor):
        return tensor.int() if tensor.dtype is torch.int64 else tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run('gat', tensors, edge_index).sum()
    edge_index.zero_()
    with contextlib.nullcontext() if on is None else pygfuse.execution_paths(on):
        found = torch.autograd.grad(out, tensors)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_the_report_counts_edges_and_loops():
    conv, edge_index = GATConv(8, 4), torch.tensor([[0, 1, 2, 2], [1, 2, 2, 0]])
    for _ in range(2):
        conv(torch.randn(3, 8), edge_index).sum().backward()
    # of four edges, one is a self-loop already
    assert conv.note.backward.walked_edges == 6


def test_programs_that_score_channels_count_twice(monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 300 * (EDGES + 2 * NODES))
    made, build = [], Graph.of
    monkeypatch.setattr(Graph, 'of', lambda *given, **named: made.append(given) or build(*given, **named))
    for name, is_sorted in (('gat', False), ('gine', False), ('gatv2', True)):
        made.clear()
        run(name, leaves(name), random_edges(NODES, NODES, EDGES))
        assert bool(made) == is_sorted
