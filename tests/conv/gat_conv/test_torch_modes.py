"""GATConv compiled by torch."""

from __future__ import annotations

import shutil

import pytest
import torch

from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, EDGE_DIM, FEATURES, RANDOM

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def compiled_and_eager(backend: str) -> None:
    torch._dynamo.reset()
    conv = GATConv(**BASE, edge_dim=EDGE_DIM)
    x, edge_attr = RANDOM.x(FEATURES).requires_grad_(), RANDOM.edge_attr(EDGE_DIM).requires_grad_()
    inputs = (x, edge_attr, *conv.parameters())
    found = []
    for function in (conv, torch.compile(conv, fullgraph=True, backend=backend)):
        out = function(x, RANDOM.edge_index, edge_attr)
        found.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


def test_compiled_without_a_graph_break():
    compiled_and_eager('aot_eager')


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('g++') is None, reason='torch.compile needs a C++ compiler')
def test_compiled_by_inductor():
    compiled_and_eager('inductor')


def test_compiled_dropout_differs_from_call_to_call():
    torch._dynamo.reset()
    conv = GATConv(**BASE, dropout=0.5)
    function = torch.compile(conv, fullgraph=True, backend='aot_eager')
    x = RANDOM.x(FEATURES)
    assert not torch.equal(function(x, RANDOM.edge_index), function(x, RANDOM.edge_index))
