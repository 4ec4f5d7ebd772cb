"""Walks along few edges of which two threads share each row."""

import copy

import pytest
import torch

from pygfuse.conv import CGConv, GATConv, GINEConv, ResGatedGraphConv
from pygfuse.cpu.compilation import team
from pygfuse.mapping import few_edges
from tests.support.parity import random_edges

NODES, EDGES, WIDTH, FEATURES = 30, 200, 128, 3

torch.manual_seed(0)
LINEAR = torch.nn.Linear(WIDTH, 4)
# the layer, and the width of features of edges
LAYERS = {
    'CGConv': (CGConv(WIDTH), None),
    'CGConv, max': (CGConv(WIDTH, aggr='max'), None),
    'CGConv, mean': (CGConv(WIDTH, aggr='mean'), None),
    'ResGatedGraphConv': (ResGatedGraphConv(WIDTH, 64), None),
    'GINEConv': (GINEConv(LINEAR), WIDTH),
    'GINEConv, mapped edges': (GINEConv(LINEAR, edge_dim=FEATURES), FEATURES),
    'CGConv, mapped edges': (CGConv(WIDTH, dim=FEATURES), FEATURES),
}
# their weights' gradients are added up by chunks of as many edges as a row's width decides
BY_CHUNKS = 'GINEConv, mapped edges', 'CGConv, mapped edges'


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    # features would be mapped before
    monkeypatch.setattr(few_edges, 'MOST_MAPPED_FIRST', 0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def results(name, threads, dtype=torch.float32, edge_index=None):
    """The output and all gradients on so many threads."""
    torch.set_num_threads(threads)
    conv, features = LAYERS[name]
    conv, generator = copy.deepcopy(conv).to(dtype), torch.Generator().manual_seed(1)
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=dtype).requires_grad_()
    given = () if features is None else (torch.randn(EDGES, features, generator=generator, dtype=dtype),)
    inputs = [x, *[one.requires_grad_() for one in given]]
    edge_index = random_edges(NODES, NODES, EDGES, 3) if edge_index is None else edge_index
    found = []
    # the first call, and one that is like it
    for _ in range(2):
        out = conv(x, edge_index, *given)
        weighted = (out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view(out.shape)).sum()
        found += [out, *torch.autograd.grad(weighted, [*inputs, *conv.parameters()])]
    return found


@pytest.fixture
def shared(monkeypatch):
    """Any number of edges is worth two threads; gives the launches that took two."""
    launches, run = [], team.run
    torch.set_num_threads(2)
    monkeypatch.setattr(few_edges, 'MOST_OF_ONE_THREAD', 0)
    monkeypatch.setattr(team, 'run', lambda *given: [launches.append(given[2]), run(*given)])
    return launches


@pytest.mark.parametrize('name', LAYERS)
def test_shares_are_the_whole(name, monkeypatch, shared):
    found = results(name, 2)
    # forward and the adjoint, of each call
    assert shared == [2] * 4
    monkeypatch.setattr(few_edges, 'MOST_OF_ONE_THREAD', 2**40)
    expected = results(name, 2)
    assert shared == [2] * 4
    for got, wanted in zip(found, expected, strict=True):
        if name in BY_CHUNKS:
            torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-5)
        else:
            assert torch.equal(got, wanted)


@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.usefixtures('shared')
def test_bits_are_those_of_one_thread(name):
    one, *others = [results(name, threads) for threads in (1, 2, 5)]
    for other in others:
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize('threads', [1, 2])
def test_few_edges_wake_nobody(threads, monkeypatch):
    monkeypatch.setattr(team, 'run', None)
    for name in LAYERS:
        results(name, threads)


def test_one_thread_does_it_alone(shared):
    for name in LAYERS:
        results(name, 1)
    assert shared == []


NO_SHARES = [CGConv(WIDTH - 1), CGConv(32), GATConv(WIDTH, 64, heads=2), GATConv(WIDTH, 64)]


@pytest.mark.parametrize('conv', NO_SHARES, ids=['odd', 'one share', 'heads', 'a score'])
def test_what_has_no_shares(conv, shared):
    x = torch.randn(NODES, conv.channels if isinstance(conv, CGConv) else WIDTH)
    conv(x, random_edges(NODES, NODES, EDGES, 3)).sum().backward()
    assert shared == []


@pytest.mark.usefixtures('shared')
def test_a_node_that_is_not_there():
    edge_index = random_edges(NODES, NODES, EDGES, 3)
    edge_index[1, 17] = NODES
    with pytest.raises(ValueError, match=rf'edge_index\[1\] holds node {NODES} at position 17'):
        results('CGConv', 2, edge_index=edge_index)
