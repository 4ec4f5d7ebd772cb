"""A stream that reads what another one made waits for it, once; nobody waits on a CPU."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from pygfuse._lib import streams
from pygfuse._lib.memo import Memo
from pygfuse.conv._layer.normalise import cached_factors
from pygfuse.graph.graph import Graph
from pygfuse.graph.joined import Part, joined
from pygfuse.mapping.mapping import cut
from pygfuse.ops import Edges

CPU = torch.device('cpu')


class Stream:
    """A stream that runs nothing."""

    def __init__(self, number):
        self.cuda_stream, self.waited_for = number, []

    def wait_stream(self, other):
        self.waited_for.append(other)


@pytest.fixture
def beside(monkeypatch):
    """Two streams of the CPU, and ``go_to(stream)``; tensors note which streams read them."""
    current = [Stream(1)]
    monkeypatch.setattr(streams, 'ASYNCHRONOUS', {'cpu'})
    monkeypatch.setattr(streams, 'current_stream', lambda device: current[0])
    monkeypatch.setattr(streams, 'current_number', lambda device: current[0].cuda_stream)
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: False)
    read = []
    monkeypatch.setattr(Tensor, 'record_stream', lambda tensor, stream: read.append((tensor.data_ptr(), stream)))

    def go_to(stream):
        current[0] = stream

    return current[0], Stream(2), go_to, read


def edges_of(num_edges=60, nodes=9):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(nodes, (2, num_edges), generator=generator)


def test_nobody_waits_on_a_cpu():
    assert streams.makers_on(CPU) is None
    assert streams.makers_on(None) is None


def test_what_a_memo_keeps(beside):
    first, second, go_to, read = beside
    memo, made = Memo(CPU), torch.ones(3)
    for _ in range(2):
        assert memo.get_or_make(('x',), lambda: (made,))[0] is made
    assert memo.get(('x',))[0] is made
    assert not first.waited_for
    go_to(second)
    for _ in range(2):
        assert memo.get_or_make(('x',), lambda: None)[0] is made
        assert memo.get(('x',))[0] is made
    assert second.waited_for == [first]
    assert read == [(made.data_ptr(), second)]
    # each value by itself
    memo.put(('y',), made)
    memo.put(('x',), made)
    go_to(first)
    memo.get(('x',))
    assert first.waited_for == [second]
    memo.get(('y',))
    assert first.waited_for == [second, second]


@pytest.mark.parametrize('name', ['csr', 'csc', 'place_in_csc'])
def test_orders_of_edges(beside, name):
    first, second, go_to, read = beside
    graph = Graph.of(edges_of())
    found = getattr(graph, name)
    go_to(second)
    assert getattr(graph, name) is found
    assert second.waited_for == [first]
    assert {at for at, _ in read} >= {tensor.data_ptr() for tensor in streams.tensors_kept_in(found)}
    getattr(graph, name)
    assert second.waited_for == [first]


def test_an_order_that_the_second_stream_makes(beside):
    first, second, go_to, _ = beside
    graph = Graph.of(edges_of())
    graph.csr  # noqa: B018
    go_to(second)
    graph.csc  # noqa: B018
    assert second.waited_for == [first]
    go_to(first)
    graph.csr  # noqa: B018
    assert not first.waited_for
    graph.csc  # noqa: B018
    assert first.waited_for == [second]


def made_from(kind, edge_index):
    """A graph that is made of one whose rows are there, or ready."""
    graph = Graph.of(edge_index, num_sources=9, num_targets=9)
    graph.csr  # noqa: B018
    if kind == 'part':
        return graph.part(graph.csr.indptr, graph.csr.index, torch.arange(graph.num_edges), 9)
    if kind == 'regular':
        return Graph.keep_regular(edge_index.sort().values, 2, 30, 30)
    return copy.copy(graph) if kind == 'copy' else pickle.loads(pickle.dumps(graph))


@pytest.mark.parametrize('kind', ['part', 'regular', 'copy', 'pickle'])
def test_graphs_that_are_made_with_their_rows(beside, kind):
    first, second, go_to, _ = beside
    graph = made_from(kind, edges_of())
    go_to(second)
    graph.csr  # noqa: B018
    assert second.waited_for == [first]


def test_what_is_derived_of_a_graph(beside):
    first, second, go_to, _ = beside
    edge_index, like = edges_of(), torch.ones(9, 1)
    edges = Edges(edge_index, 9, 9)
    graph = edges.graph()
    read = {
        'norm': lambda: cached_factors(edges, None, like),
        'cut': lambda: cut(graph.csr),
        'edge ids': lambda: graph.csc.edge_id,
        'loops': lambda: graph.with_self_loops(9).csr,
    }
    for ask in read.values():
        go_to(first)
        ask()
        go_to(second)
        before = len(second.waited_for)
        ask()
        assert len(second.waited_for) > before
    assert set(second.waited_for) == {first}


def test_joined_edges(beside):
    first, second, go_to, _ = beside
    parts = [Part(edges_of(), 9, 9, 0, 0), Part(edges_of(), 9, 9, 0, 9)]
    joined(parts, 18)
    go_to(second)
    joined(parts, 18)
    assert second.waited_for == [first]


def test_a_captured_stream_does_not_wait(beside, monkeypatch):
    _, second, go_to, _ = beside
    graph = Graph.of(edges_of())
    graph.csr  # noqa: B018
    go_to(second)
    monkeypatch.setattr(torch.cuda, 'is_current_stream_capturing', lambda: True)
    graph.csr  # noqa: B018
    assert not second.waited_for


def test_a_copy_keeps_nothing_of_another():
    graph = Graph.of(edges_of())
    graph.memo.put(('x',), 1)
    assert copy.copy(graph).memo.get(('x',)) is None
