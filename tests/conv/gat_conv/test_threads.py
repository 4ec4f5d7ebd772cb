"""The same bits by any number of threads, from several threads, and in child processes."""

from __future__ import annotations

import concurrent.futures
import multiprocessing

import pytest
import torch

from pygfuse.conv import GATConv
from pygfuse.ops import Edges, aggregate
from pygfuse.program.program import PROGRAMS
from tests.support.gat_conv import BASE, CHANNELS, FEATURES, HEADS, MANY_EDGES, MANY_X
from tests.support.parity import random_edges

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@pytest.fixture
def threads():
    """Sets torch's number of threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def training_step(conv, x, edge_index, seed: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    x = x.clone().requires_grad_()
    out = conv(x, edge_index)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, conv.att_src, conv.att_dst])]


def test_the_same_bits_with_any_number_of_threads(threads):
    conv = GATConv(**BASE, dropout=0.3).requires_grad_()
    x = torch.randn(500, FEATURES)
    threads(1)
    expected = training_step(conv, x, MANY_EDGES.clone())
    for count in (1, 2, 4, 4):
        threads(count)
        found = training_step(conv, x, MANY_EDGES.clone())
        # the products with dense matrices are torch's own
        assert torch.equal(found[0], expected[0])
        for got, wanted in zip(found[1:], expected[1:], strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_same_bits_run_to_run():
    conv = GATConv(**BASE, dropout=0.3, edge_dim=1)
    edge_attr = torch.randn(MANY_EDGES.shape[1])
    runs = []
    for _ in range(3):
        torch.manual_seed(0)
        out = conv(MANY_X, MANY_EDGES.clone(), edge_attr)
        runs.append([out, *torch.autograd.grad(out.square().sum(), list(conv.parameters()))])
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


def test_several_python_threads_at_once():
    conv = GATConv(**BASE)
    graphs = [random_edges(500, 500, 5000, seed=seed) for seed in range(4)]
    expected = [training_step(conv, MANY_X, graph) for graph in graphs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # clones: the graphs are built by the threads too
        found = list(pool.map(lambda i: training_step(conv, MANY_X, graphs[i % 4].clone()), range(40)))
    for i, step in enumerate(found):
        for got, wanted in zip(step, expected[i % 4], strict=True):
            torch.testing.assert_close(got, wanted)


def _attention_step(x, alpha, edge_index):
    """The fused operator alone: torch's own parallel operators hang in a child of a process that used OpenMP."""
    operands = {'x': x, 'alpha_src': alpha, 'alpha_dst': alpha, 'negative_slope': 0.2}
    out = aggregate(PROGRAMS['gat'], Edges(edge_index, len(x), len(x)), operands, HEADS, CHANNELS)
    return out, torch.autograd.grad(out, alpha, torch.ones_like(out))[0]


def _step_in_a_child(connection, *arguments):
    out, gradient = _attention_step(*arguments)
    connection.send((out.detach().numpy(), gradient.numpy()))


@pytest.mark.filterwarnings('ignore:This process')
@pytest.mark.parametrize('count', [1, 2])
def test_a_forked_child_runs_after_its_parent_did(count, threads):
    threads(count)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(MANY_X), HEADS, CHANNELS, generator=generator)
    alpha = torch.randn(len(MANY_X), HEADS, generator=generator).requires_grad_()
    edge_index = MANY_EDGES.clone()
    out, gradient = _attention_step(x, alpha, edge_index)
    context = multiprocessing.get_context('fork')
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_step_in_a_child, args=(there, x, alpha, edge_index))
    child.start()
    try:
        assert here.poll(60), 'the child hangs'
        got, got_gradient = here.recv()
    finally:
        child.kill()
        child.join()
    assert torch.equal(torch.from_numpy(got), out.detach())
    assert torch.equal(torch.from_numpy(got_gradient), gradient)


class _Convolved(torch.utils.data.Dataset):
    def __init__(self, conv):
        self.conv = conv

    def __len__(self):
        return 6

    def __getitem__(self, i):
        with torch.no_grad():
            return self.conv(MANY_X[:, :FEATURES], random_edges(500, 500, 5000, seed=i))


@pytest.mark.filterwarnings('ignore:This process', 'ignore:This DataLoader')
def test_workers_of_a_data_loader_run_a_layer():
    conv = GATConv(**BASE)
    data = _Convolved(conv)
    expected = [data[i] for i in range(len(data))]
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=2, multiprocessing_context='fork', timeout=60
    )
    for got, wanted in zip(loader, expected, strict=True):
        torch.testing.assert_close(got, wanted)
