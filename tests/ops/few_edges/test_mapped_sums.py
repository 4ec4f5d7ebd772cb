"""Maps of sums along few edges are one node of autograd, with the numbers of one for each part."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn import Linear

from pygfuse import force_mapping
from pygfuse.ops.few_edges import mapped_sums
from pygfuse.ops.few_edges.mapped_sums import mapped_sum_along
from pygfuse.ops.few_edges.sums import FewEdges, sum_along
from tests.support.layouts import apart
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES, WIDTH, OUT = 9, 7, 40, 5, 3


def leaf(rows, width=WIDTH, dtype=torch.float64):
    return torch.randn(rows, width, dtype=dtype, generator=torch.Generator().manual_seed(rows)).requires_grad_()


def call_of(targets, bias, with_root, dtype=torch.float64):
    """Arguments but for the reduction; `targets` None: the sources."""
    torch.manual_seed(1)
    x = leaf(SOURCES, dtype=dtype)
    pair = (x, x if targets is None else leaf(targets, dtype=dtype)) if with_root else (x, None)
    num_targets = SOURCES if targets is None else targets
    edges = FewEdges(random_edges(SOURCES, num_targets, EDGES, 3), 'source_to_target', SOURCES, num_targets)
    root = Linear(WIDTH, OUT, bias=False, dtype=dtype) if with_root else None
    return Linear(WIDTH, OUT, bias=bias, dtype=dtype), pair, edges, root


def leaves_of(linear, pair, root):
    rows = {id(x): x for x in pair if x is not None}
    return [*rows.values(), *linear.parameters(), *(() if root is None else root.parameters())]


def by_parts(linear, pair, edges, reduce, root):
    out = F.linear(sum_along(pair[0], edges, reduce), linear.weight, linear.bias)
    return out if root is None else out + F.linear(pair[1], root.weight)


cases = pytest.mark.parametrize(('targets', 'bias', 'with_root'), [
    (None, True, True), (None, False, True), (None, True, False), (TARGETS, True, True), (TARGETS, False, False),
])  # fmt: skip


@cases
@pytest.mark.parametrize('reduce', ['sum', 'mean'])
def test_numbers_of_one_node_for_each_part(targets, bias, with_root, reduce):
    linear, pair, edges, root = call_of(targets, bias, with_root)
    found = mapped_sum_along(linear, pair, edges, reduce, root)
    expected, leaves = by_parts(linear, pair, edges, reduce, root), leaves_of(linear, pair, root)
    assert type(found.grad_fn).__name__ == '_MappedSumBackward'
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(out.sin().sum(), leaves) for out in (found, expected))
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        assert torch.equal(mapped_sum_along(linear, pair, edges, reduce, root), found)


@cases
def test_derivatives(targets, bias, with_root):
    linear, pair, edges, root = call_of(targets, bias, with_root)

    def run(*leaves):
        return mapped_sum_along(linear, pair, edges, 'mean', root)

    leaves = leaves_of(linear, pair, root)
    assert torch.autograd.gradcheck(run, leaves, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.parametrize('frozen', ['x', 'weight', 'bias', 'root'])
def test_only_gradients_that_are_needed(frozen):
    linear, pair, edges, root = call_of(None, True, True)
    leaves = dict(zip(('x', 'weight', 'bias', 'root'), leaves_of(linear, pair, root), strict=True))
    leaves[frozen].requires_grad_(False)
    mapped_sum_along(linear, pair, edges, 'sum', root).sum().backward()
    assert {name for name, tensor in leaves.items() if tensor.grad is not None} == {*leaves} - {frozen}


@cases
def test_saved_tensors_that_hooks_lay_out_otherwise(targets, bias, with_root):
    linear, pair, edges, root = call_of(targets, bias, with_root)
    leaves = leaves_of(linear, pair, root)
    expected = torch.autograd.grad(mapped_sum_along(linear, pair, edges, 'sum', root).sin().sum(), leaves)
    with torch.autograd.graph.saved_tensors_hooks(apart, lambda one: one):
        found = torch.autograd.grad(mapped_sum_along(linear, pair, edges, 'sum', root).sin().sum(), leaves)
    torch.testing.assert_close(found, expected)


def test_what_is_refused_before_a_kernel_reads_it():
    linear, pair, edges, _ = call_of(TARGETS, True, False)
    for options in ({'reduce': 'normalised'}, {'reduce': 'sum', 'itself': 2.0}):
        with pytest.raises(ValueError, match='as many sources as targets'):
            mapped_sum_along(linear, pair, edges, **options)
    with pytest.raises(ValueError, match=f"Expected 'x' to have {SOURCES} rows"):
        mapped_sum_along(linear, (pair[0][1:], None), edges, 'sum')


def test_nothing_of_backward_is_written_before_it_runs(monkeypatch):
    mapped_sums._step.cache_clear()
    linear, pair, edges, root = call_of(None, True, True)
    with monkeypatch.context() as patch:
        patch.setattr(mapped_sums, 'write_adjoint', None)
        out = mapped_sum_along(linear, pair, edges, 'sum', root)
        with pytest.raises(TypeError, match='NoneType'):
            out.sum().backward(retain_graph=True)
    out.sum().backward()


def test_what_is_said_around_backward_holds(monkeypatch):
    linear, pair, edges, root = call_of(None, True, True)
    leaves = leaves_of(linear, pair, root)
    expected = torch.autograd.grad(mapped_sum_along(linear, pair, edges, 'sum', root).sum(), leaves)
    out = mapped_sum_along(linear, pair, edges, 'sum', root)
    # the sum's own adjoint knows what is said
    monkeypatch.setattr('pygfuse.ops.few_edges.mapped_sums.target_row_of', None)
    with force_mapping('scatter'):
        torch.testing.assert_close(torch.autograd.grad(out.sum(), leaves), expected)


@pytest.mark.parametrize('which', ['linear', 'root'])
def test_modules_that_are_more_than_a_map_are_called(which):
    linear, pair, edges, root = call_of(None, True, True)
    module, called = {'linear': linear, 'root': root}[which], []
    module.register_forward_hook(lambda *arguments: called.append(True))
    found = mapped_sum_along(linear, pair, edges, 'sum', root)
    assert called
    torch.testing.assert_close(found, by_parts(linear, pair, edges, 'sum', root))


def test_a_root_with_a_bias_is_called():
    linear, pair, edges, _ = call_of(None, True, True)
    root = Linear(WIDTH, OUT, dtype=torch.float64)
    found = mapped_sum_along(linear, pair, edges, 'sum', root)
    torch.testing.assert_close(found, by_parts(linear, pair, edges, 'sum', root) + root.bias)


@pytest.mark.parametrize('name', ['weight', 'bias'])
def test_what_is_no_parameter_any_more(name):
    linear, pair, edges, root = call_of(None, True, True)
    value = 2 * getattr(linear, name).detach()
    delattr(linear, name)
    setattr(linear, name, value.requires_grad_())
    found = mapped_sum_along(linear, pair, edges, 'sum', root)
    torch.testing.assert_close(found, by_parts(linear, pair, edges, 'sum', root))


def test_rows_of_another_type_are_refused_as_torch_refuses_them():
    linear, pair, edges, root = call_of(None, True, True)
    with pytest.raises(RuntimeError, match='same dtype'):
        mapped_sum_along(linear.float(), pair, edges, 'sum', root)


def test_edges_that_were_written_to():
    linear, pair, edges, root = call_of(None, True, True)
    out = mapped_sum_along(linear, pair, edges, 'sum', root)
    edges.edge_index[0, 0] = 1
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


def test_nodes_that_are_not_there():
    linear, pair, edges, root = call_of(None, True, True)
    edges.edge_index[0, 17] = SOURCES
    with pytest.raises(ValueError, match=rf'edge_index\[0\] holds node {SOURCES} at position 17'):
        mapped_sum_along(linear, pair, edges, 'sum', root)
