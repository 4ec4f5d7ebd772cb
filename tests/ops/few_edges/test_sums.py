"""Sums along edges as they come give what walks of sorted edges give."""

import functools

import pytest
import torch
from torch import Tensor

from pygfuse import Mapping, force_mapping
from pygfuse.graph.graph import Graph
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.few_edges.sums import FewEdges, sum_along
from pygfuse.program.library.neighbours import NEIGHBOURS
from tests.support.operators import Names
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES = 9, 7, 40
FORMS = ['sum', 'mean', 'normalised', 'normalised with loops']


def few(sources: int, targets: int, flow: str = 'source_to_target') -> FewEdges:
    edge_index = random_edges(sources, targets, EDGES, 3)
    edge_index = edge_index if flow == 'source_to_target' else edge_index.flip(0)
    return FewEdges(edge_index, flow, sources, targets)


def leaf(rows: int, width: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, width, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()


def matrix(edges: FewEdges, form: str) -> Tensor:
    """What rows of sources are multiplied by."""
    targets, sources = edges.edge_index.flip(0) if edges.flow == 'source_to_target' else edges.edge_index
    found = torch.zeros(edges.num_targets, edges.num_sources, dtype=torch.float64)
    found.index_put_((targets, sources), torch.ones(EDGES, dtype=torch.float64), accumulate=True)
    if form == 'normalised with loops':
        found.fill_diagonal_(1.0)
    degree = found.sum(1, keepdim=True)
    if form == 'mean':
        return found / degree.clamp(min=1)
    factors = torch.where(degree > 0, degree.rsqrt(), 0.0)
    return found if form == 'sum' else factors * found * factors.t()


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
@pytest.mark.parametrize('itself', [None, 1.5])
@pytest.mark.parametrize('form', FORMS)
def test_products_with_the_adjacency(form, itself, flow):
    edges, x = few(SOURCES, SOURCES, flow), leaf(SOURCES, 3)
    dense = matrix(edges, form) + (0.0 if itself is None else itself * torch.eye(SOURCES, dtype=torch.float64))
    torch.testing.assert_close(sum_along(x, edges, form, itself), dense @ x)
    assert torch.autograd.gradcheck(lambda x: sum_along(x, edges, form, itself), x, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: sum_along(x, edges, form, itself), x)


@pytest.mark.parametrize('form', ['sum', 'mean'])
def test_from_other_sources(form):
    edges, x = few(SOURCES, TARGETS), leaf(SOURCES, 3)
    torch.testing.assert_close(sum_along(x, edges, form), matrix(edges, form) @ x)
    assert torch.autograd.gradcheck(lambda x: sum_along(x, edges, form), x)


@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_weighted_rows_from_other_sources(flow):
    edges, x = few(SOURCES, TARGETS, flow), leaf(SOURCES, 3)
    weights = torch.rand(EDGES, 2, dtype=torch.float64)[:, 0]
    dense = torch.zeros(TARGETS, SOURCES, dtype=torch.float64)
    row = 1 if flow == 'source_to_target' else 0
    dense.index_put_((edges.edge_index[row], edges.edge_index[1 - row]), weights, accumulate=True)
    torch.testing.assert_close(sum_along(x, edges, 'weighted', weights=weights), dense @ x)
    run = functools.partial(sum_along, edges=edges, reduce='weighted', weights=weights)
    assert torch.autograd.gradcheck(run, x, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, x)


def test_a_backward_pass_that_is_told_how_to_run_walks_weighted_edges():
    edges, x, weights = few(SOURCES, TARGETS), leaf(SOURCES, 3), torch.rand(EDGES, dtype=torch.float64)
    out = sum_along(x, edges, 'weighted', weights=weights)
    expected = torch.autograd.grad(out, x, torch.ones_like(out), retain_graph=True)
    with force_mapping(Mapping()):
        found = torch.autograd.grad(out, x, torch.ones_like(out))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('form', ['sum', 'mean'])
@pytest.mark.parametrize('width', [3, 300])
def test_the_bits_of_sorted_edges(form, width):
    edges, x = few(SOURCES, TARGETS), leaf(SOURCES, width, torch.float32).detach()
    expected = aggregate(NEIGHBOURS, Edges(edges.edge_index, SOURCES, TARGETS), {'x': x}, 1, width, form, flat=True)
    assert torch.equal(sum_along(x, edges, form), expected)


@pytest.mark.parametrize('itself', [None, 1.5])
@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('width', [3, 300])
def test_gradients_of_few_rows(form, itself, width):
    edges, x = few(SOURCES, SOURCES), leaf(SOURCES, width)
    grad = torch.randn(SOURCES, width, dtype=torch.float64)
    # one number of a row is enough
    grad[5:], grad[2], grad[3, :-1] = 0.0, 0.0, 0.0
    (found,) = torch.autograd.grad(sum_along(x, edges, form, itself), x, grad)
    expected = matrix(edges, form).t() @ grad
    torch.testing.assert_close(found, expected if itself is None else expected + itself * grad)


@pytest.mark.parametrize('place', [0, 1])
@pytest.mark.parametrize('node', [-1, SOURCES])
def test_nodes_that_are_not_there(place, node):
    edges = few(SOURCES, SOURCES)
    edges.edge_index[place, 17] = node
    for x in (leaf(SOURCES, 3), leaf(SOURCES, 3).detach()):
        with pytest.raises(ValueError, match=rf'edge_index\[{place}\] holds node {node} at position 17'):
            sum_along(x, edges, 'sum')


def test_rows_that_do_not_fit():
    with pytest.raises(ValueError, match=f"Expected 'x' to have {SOURCES} rows"):
        sum_along(leaf(SOURCES - 1, 3), few(SOURCES, TARGETS), 'sum')
    for form, itself in (('normalised', None), ('sum', 1.0)):
        with pytest.raises(ValueError, match='as many sources as targets'):
            sum_along(leaf(SOURCES, 3), few(SOURCES, TARGETS), form, itself)


def test_edges_that_are_written_to_before_backward():
    edges, x = few(SOURCES, SOURCES), leaf(SOURCES, 3)
    out = sum_along(x, edges, 'sum')
    edges.edge_index[0, 0] = 0
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


@pytest.mark.parametrize('dtype', [torch.int64, torch.int32])
def test_hooks_of_saved_tensors(dtype):
    """What they give back may be laid out otherwise."""
    edges, x = few(SOURCES, SOURCES), leaf(SOURCES, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to(dtype).t().contiguous(), lambda t: t.t()):
        out = sum_along(x, edges, 'sum')
    (found,) = torch.autograd.grad(out, x, torch.ones_like(out))
    (expected,) = torch.autograd.grad(sum_along(x, edges, 'sum'), x, torch.ones_like(out))
    assert torch.equal(found, expected)


@pytest.mark.parametrize('form', FORMS)
def test_who_intercepts_operators_sees_some(form):
    edges, x = few(SOURCES, SOURCES), leaf(SOURCES, 3)
    out = sum_along(x, edges, form, 1.5)
    expected = torch.autograd.grad(out.square().sum(), x)[0]
    out = sum_along(x, edges, form, 1.5).square().sum()
    with Names() as names:
        (found,) = torch.autograd.grad(out, x)
    assert any('index_add' in name for name in names.seen)
    torch.testing.assert_close(found, expected)
    own = x.detach().as_subclass(Own)
    torch.testing.assert_close(sum_along(own, edges, form).as_subclass(Tensor), sum_along(x.detach(), edges, form))


class Own(Tensor):
    pass


@pytest.mark.parametrize('form', FORMS)
def test_what_is_said_around_backward(form, monkeypatch):
    edges, x = few(SOURCES, SOURCES), leaf(SOURCES, 3)
    given = sum_along(x, edges, form, 1.5), x, torch.ones(SOURCES, 3, dtype=x.dtype)
    (expected,) = torch.autograd.grad(*given, retain_graph=True)
    walked = []
    cut = Graph.csc.fget
    monkeypatch.setattr(Graph, 'csc', property(lambda graph: walked.append(graph) or cut(graph)))
    with force_mapping('edge'):
        (found,) = torch.autograd.grad(*given)
    assert walked
    torch.testing.assert_close(found, expected)
