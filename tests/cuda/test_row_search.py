"""The search for active rows by torch's operators, beside the CPU's kernels."""

import pytest
import torch

from pygfuse.cpu.edges import row_search as cpu
from pygfuse.cuda.edges import row_search as cuda
from pygfuse.graph.graph import Graph
from tests.support.comparison import random_graph

GRAPHS = {
    'random': random_graph(40, 30, 200, hub=50),
    'no edges': random_graph(3, 30, 0),
    'edges sorted before': Graph.of(torch.stack([torch.arange(60) % 7, torch.arange(60) // 2])),
    'self-loops put in': random_graph(30, 30, 90).with_self_loops(30),
    'int64': random_graph(40, 30, 200),
}
GRAPHS['int64'].index_dtype = torch.int64


@pytest.mark.parametrize('active', ['few', 'none', 'all'])
@pytest.mark.parametrize('name', GRAPHS)
def test_the_same_rows_and_edges_as_on_a_cpu(name, active):
    csr = GRAPHS[name].csr
    values = torch.zeros(30, 3)
    values[{'few': [0, 4, 28], 'none': [], 'all': range(30)}[active], 1] = float('nan')
    values[7 if active == 'all' else 8, 2] = -0.0
    found, expected = cuda.active_rows(values, csr.indptr), cpu.active_rows(values, csr.indptr)
    assert found[0].dtype == torch.uint8
    assert torch.equal(found[0], expected[0])
    assert found[1:] == expected[1:]
    for one, other in zip(cuda.kept_rows(csr, found[0]), cpu.kept_rows(csr, found[0]), strict=True):
        assert one.dtype == csr.indptr.dtype
        assert torch.equal(one, other)
