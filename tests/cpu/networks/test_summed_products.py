"""Products of values and sources, added up by target, beside those of each edge."""

from __future__ import annotations

import pytest
import torch

from pygfuse.cpu.networks.summed_products import sum_products, sum_products_back
from pygfuse.graph.graph import Graph
from pygfuse.mapping.edge_chunks import chunks_of, rows_of
from tests.support.parity import random_edges

SOURCES, TARGETS = 7, 9


def _graph(edges):
    # a hub, and nodes without edges
    edge_index = random_edges(SOURCES, TARGETS - 2, edges)
    edge_index[1, : edges // 2] = 3
    return Graph.of(edge_index, (SOURCES, TARGETS))


def _expected(csr, chunk, source, values, with_sources):
    gathered = source[csr.index[chunk.first : chunk.last].long()]
    products = values.unsqueeze(2) * gathered.unsqueeze(1)
    if with_sources:
        products = torch.cat([products, gathered.unsqueeze(1)], dim=1)
    out = products.new_zeros(TARGETS, *products.shape[1:]).index_add(0, rows_of(csr, chunk), products)
    return out[chunk.row : chunk.row + chunk.rows].flatten(1)


@pytest.mark.parametrize('with_sources', [True, False])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(('width', 'count'), [(1, 1), (8, 4), (70, 6), (64, 9), (130, 2)])
def test_sums_and_their_adjoint(width, count, dtype, with_sources):
    graph = _graph(400)
    source = torch.randn(SOURCES, width, dtype=dtype, requires_grad=True)
    chunks = chunks_of(graph.csr, 150)
    # a row lies in two of them
    assert len(chunks) == 3
    assert chunks[0].row + chunks[0].rows > chunks[1].row
    for chunk in chunks:
        values = torch.randn(chunk.edges, count, dtype=dtype, requires_grad=True)
        expected = _expected(graph.csr, chunk, source, values, with_sources)
        out = torch.full_like(expected, torch.nan)
        sum_products(graph.csr, chunk, source.detach(), values.detach(), out)
        torch.testing.assert_close(out, expected.detach())
        grad = torch.randn_like(expected)
        of_values, of_source = torch.full_like(values, torch.nan), source.new_full((chunk.edges, width), torch.nan)
        sum_products_back(graph.csr, chunk, source.detach(), values.detach(), grad, of_values, of_source)
        found = torch.zeros_like(source).index_add(0, graph.csr.index[chunk.first : chunk.last].long(), of_source)
        of_all, of_sources = torch.autograd.grad(expected, (values, source), grad)
        torch.testing.assert_close(of_values, of_all)
        torch.testing.assert_close(found, of_sources)


def test_long_sums_keep_their_digits():
    graph = Graph.of(torch.stack([torch.zeros(100_000, dtype=torch.int64)] * 2), (1, 1))
    chunk = chunks_of(graph.csr, 100_000)[0]
    out = torch.empty(1, 2)
    sum_products(graph.csr, chunk, torch.full((1, 1), 0.1), torch.ones(100_000, 1), out)
    torch.testing.assert_close(out, torch.full_like(out, 1e4), rtol=3e-6, atol=0.0)
