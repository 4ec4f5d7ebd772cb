"""How many new tensors of nodes x channels a training step makes: each is as many bytes of new pages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GINConv, GraphConv, ResGatedGraphConv, SAGEConv, TransformerConv

import pygfuse
from pygfuse.memory import _allocations
from tests.support.parity import random_edges

# 8 MB a tensor
NODES, WIDTH = 2**15, 64
LAYERS = {
    # a map and the walk's result, and the gradients of both
    'GCN': (lambda: GCNConv(WIDTH, WIDTH), 4),
    # the walk's result and the output, and the gradients of the former, of what was walked and of the targets
    'SAGE': (lambda: SAGEConv(WIDTH, WIDTH), 5),
    'GraphConv': (lambda: GraphConv(WIDTH, WIDTH), 5),
    # two maps and the walk's result; the gradients of what was walked and of the features
    'GraphConv, mapped first': (lambda: GraphConv(WIDTH, WIDTH), 5),
    'GIN': (lambda: GINConv(torch.nn.Linear(WIDTH, WIDTH)), 4),
    # four maps and the walk's result; the gradients of three maps, and of the features by these and by the fourth
    'Transformer': (lambda: TransformerConv(WIDTH, WIDTH // 4, heads=4), 10),
    'ResGated': (lambda: ResGatedGraphConv(WIDTH, WIDTH), 10),
}


def tensors_made(function, size: int) -> int:
    """How many tensors of about that many bytes, or more, a call makes."""
    return sum(round(nbytes / size) for nbytes in _allocations(function) if nbytes > 0.75 * size)


@pytest.mark.parametrize('name', LAYERS)
def test_a_step_makes_no_more_tensors_of_nodes_than_it_needs(name):
    make, expected = LAYERS[name]
    torch.manual_seed(0)
    conv, edge_index = pygfuse.fuse(make()), random_edges(NODES, NODES, 100_000)
    x, grad = torch.randn(NODES, WIDTH, requires_grad=True), torch.randn(NODES, WIDTH)

    def step() -> Tensor:
        out = conv(x, edge_index)
        out.backward(grad)
        x.grad = None
        return out

    order = 'map first' if name.endswith('mapped first') else None
    with pygfuse.mapping.map_order.force_order(order) if order else torch.enable_grad():
        step()
        assert tensors_made(step, x.nbytes) == expected
    assert conv.note.reason is None
