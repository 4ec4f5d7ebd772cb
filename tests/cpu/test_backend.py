from __future__ import annotations

import pytest
import torch

from pygfuse.cpu import adjoint
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.program import PROGRAMS
from tests.support.parity import GRAPHS


@pytest.mark.parametrize('reduce', ['sum', 'mean'])
@pytest.mark.parametrize('name', GRAPHS)
def test_the_adjoint_of_a_plain_sum_takes_the_walk_of_sums(name, reduce, monkeypatch):
    def refuse(*arguments):
        raise AssertionError('a walk of its own')

    monkeypatch.setattr(adjoint, '_walk', refuse)
    graph = GRAPHS[name]()
    edges = Edges(graph.edge_index, graph.num_sources, graph.num_targets)
    edges.graph().csc  # noqa: B018 (sorted edges: else they may be summed in no order)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(graph.num_sources, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(graph.num_targets, 6, generator=generator, dtype=torch.float64)
    source, place = graph.edge_index.long()
    divisors = torch.bincount(place, minlength=graph.num_targets).clamp(min=1) if reduce == 'mean' else torch.ones(1)
    expected = torch.zeros_like(x).index_add(0, source, (grad / divisors[:, None])[place])
    out = aggregate(NEIGHBOURS, edges, {'x': x}, 1, 6, reduce).flatten(1)
    torch.testing.assert_close(torch.autograd.grad(out, x, grad)[0], expected)


def test_which_programs_are_plain_sums():
    # what other tests had compiled is there, too, and what was refused of it cannot be bound
    written = {name: program for name, program in PROGRAMS.items() if not name.startswith('compiled_')}
    found = {
        name for name, program in written.items() if program.bind(tuple(program.operands)).summed_sources is not None
    }
    assert 'neighbours' in found
    assert not found & {'weighted_neighbours', 'normalised_neighbours', 'gat', 'gatv2', 'gine'}
    assert NEIGHBOURS.bind(('x',)).summed_sources == 'x'
