"""Tensors that stand for graphs."""

import gc
import weakref

import pytest
import torch

from pygfuse.graph.graph import Graph
from tests.support.adjacencies import FLOWS, LAYOUTS, SPARSE, make

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@pytest.mark.parametrize('layout', LAYOUTS)
def test_tokens(layout):
    case = (torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3, 3)
    adjacency = make(layout, case)[0]
    graph = Graph.of(adjacency, (3, 3))
    token = graph.token
    plain = layout not in SPARSE and layout != 'EdgeIndex'
    assert (token is adjacency) == plain
    assert type(token) is torch.Tensor
    assert Graph.of(token, (3, 3)) is graph
    loops = graph.with_self_loops()
    token = loops.token
    assert loops.token is token
    assert Graph.of(token, (7, 7), flow=FLOWS[1]) is loops
    assert Graph.of(token.clone()) is loops
    copied, gone = token.clone(), weakref.ref(loops)
    del graph, loops, adjacency
    assert Graph.of(token).num_edges == 5
    del token
    gc.collect()
    assert gone() is None
    with pytest.raises(ValueError, match='gone'):
        Graph.of(copied)


def test_a_token_that_autograd_saved():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, token):
            ctx.save_for_backward(token)
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            seen.append(Graph.of(ctx.saved_tensors[0], (3, 3)))
            return 2 * grad, None

    for loops in (False, True):
        seen = []
        edge_index = torch.tensor([[0, 1, 2], [1, 0, 2]])
        graph = Graph.of(edge_index, (3, 3))
        graph = graph.with_self_loops() if loops else graph
        out = Double.apply(torch.ones(3, requires_grad=True), graph.token)
        identity = id(graph)
        del graph, edge_index
        out.sum().backward()
        assert [id(found) for found in seen] == [identity]
