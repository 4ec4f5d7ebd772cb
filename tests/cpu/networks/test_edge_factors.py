"""Products of a chunk's values with factors, their tangents and their adjoint, against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pygfuse.cpu.networks.edge_factors import times, times_back
from pygfuse.graph.graph import Graph
from pygfuse.mapping.edge_chunks import chunks_of

NODES, EDGES = 9, 290
torch.manual_seed(0)
CSR = Graph.of(torch.randint(NODES, (2, EDGES)), num_sources=NODES, num_targets=NODES).csr
# not the first edges, and more of them than a part of the work has
CHUNK = chunks_of(CSR, 140)[1]


def product(values: Tensor, source: Tensor | None, features: Tensor | None) -> Tensor:
    for factor in (source, features):
        values = values if factor is None else values * factor
    return values


# a block of registers, several and one that is not full
@pytest.mark.parametrize('width', [pytest.param(3, marks=pytest.mark.slow), 75])
@pytest.mark.parametrize('moved', ['nothing', 'source', 'features', 'both'])
@pytest.mark.parametrize('given', ['source', 'numbers', 'rows', 'source and numbers', 'source and rows'])
def test_products_and_their_adjoint(given, moved, width):
    torch.manual_seed(1)
    edges, places = CHUNK.edges, CSR.index[CHUNK.first : CHUNK.last].long()

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    source = random(NODES, width) if 'source' in given else None
    features = random(edges, 1 if 'numbers' in given else width) if given != 'source' else None
    of_source = torch.randn(NODES, width).double() if source is not None and moved in ('source', 'both') else None
    of_features = torch.randn_like(features) if features is not None and moved in ('features', 'both') else None
    values = random(*((edges, width) if moved == 'nothing' else (2, edges, width)))
    factors = source, features, of_source, of_features
    rows = None if source is None else source[places]
    expected = product(values if moved == 'nothing' else values[0], rows, features)
    if moved != 'nothing':
        tangent = product(values[1], rows, features)
        if of_source is not None:
            tangent = tangent + product(values[0], of_source[places], features)
        if of_features is not None:
            tangent = tangent + product(values[0], rows, of_features)
        expected = torch.stack([expected, tangent])
    held = [None if t is None else t.detach() for t in factors]
    out = torch.empty_like(values)
    times(CSR, CHUNK, values.detach(), held, out)
    torch.testing.assert_close(out, expected.detach())

    grad = torch.randn_like(expected)
    leaves = [t for t in (values, source, features) if t is not None]
    wanted = dict(zip(map(id, leaves), torch.autograd.grad(expected, leaves, grad), strict=True))
    edge_by_edge = None if source is None else torch.empty(edges, width, dtype=torch.float64)
    of_numbers = None if features is None else torch.zeros_like(features)
    times_back(CSR, CHUNK, values.detach(), held, grad, edge_by_edge, of_numbers)
    torch.testing.assert_close(grad, wanted[id(values)])
    if source is not None:
        found = torch.zeros(NODES, width, dtype=torch.float64).index_add(0, places, edge_by_edge)
        torch.testing.assert_close(found, wanted[id(source)])
    if features is not None:
        torch.testing.assert_close(of_numbers, wanted[id(features)])
