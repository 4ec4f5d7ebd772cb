"""What runs the path of PyG, and why."""

from __future__ import annotations

import pytest
import torch

import pygfuse
from pygfuse.conv import GATConv
from tests.support.gat_conv import BASE, EDGE_DIM, FEATURES, RANDOM, layers

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def reason_of(conv, *arguments) -> str | None:
    conv(*arguments)
    (row,) = pygfuse.report(conv)
    assert row.why_not == conv.note.reason
    return row.why_not


def test_a_type_without_kernels_falls_back():
    pyg, fused = layers(torch.bfloat16)
    x = RANDOM.x(FEATURES).bfloat16()
    assert 'bfloat16' in reason_of(fused, x, RANDOM.edge_index)
    assert torch.equal(fused(x, RANDOM.edge_index), pyg(x, RANDOM.edge_index))


@pytest.mark.parametrize(
    'register',
    [
        'register_propagate_forward_pre_hook',
        'register_propagate_forward_hook',
        'register_message_forward_pre_hook',
        'register_message_forward_hook',
        'register_aggregate_forward_pre_hook',
        'register_aggregate_forward_hook',
        'register_edge_update_forward_pre_hook',
        'register_edge_update_forward_hook',
    ],
)
def test_hooks_are_called(register):
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    expected = conv(x, edge_index)
    called = []
    handle = getattr(conv, register)(lambda *arguments: called.append(1))
    assert 'hook' in reason_of(conv, x, edge_index)
    assert called
    torch.testing.assert_close(conv(x, edge_index), expected)
    handle.remove()
    called.clear()
    assert reason_of(conv, x, edge_index) is None
    assert not called


@pytest.mark.parametrize('part', ['lin', 'lin_edge', 'res'])
@pytest.mark.parametrize(
    'register', ['register_forward_pre_hook', 'register_forward_hook', 'register_full_backward_hook']
)
def test_hooks_of_the_linear_layers_are_called(part, register):
    conv = GATConv(**BASE, edge_dim=EDGE_DIM, residual=True)
    called = []
    getattr(getattr(conv, part), register)(lambda *arguments: called.append(1))
    x = RANDOM.x(FEATURES).requires_grad_()
    conv(x, RANDOM.edge_index, RANDOM.edge_attr(EDGE_DIM)).sum().backward()
    assert called


def test_an_explainer_sees_the_messages():
    conv = GATConv(**BASE)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    expected = conv(x, edge_index)
    conv.explain = True
    conv._edge_mask = torch.nn.Parameter(torch.zeros(RANDOM.num_edges))
    conv._apply_sigmoid = False
    conv._loop_mask = edge_index[0] != edge_index[1]
    out = conv(x, edge_index)
    assert 'explain' in conv.note.reason
    assert not torch.equal(out, expected)  # masked to nothing but the loops
    conv.explain = False
    conv._edge_mask = None
    assert torch.equal(conv(x, edge_index), expected)
    assert conv.note.reason is None


@pytest.mark.parametrize('aggr', ['max', 'min', 'std', ['add', 'mean']], ids=str)
def test_other_aggregations_fall_back(aggr):
    pyg, fused = layers(aggr=aggr)
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    if isinstance(aggr, list):  # PyG's layer cannot use these either
        assert fused.why_not() is not None
        return
    assert 'aggr' in reason_of(fused, x, edge_index)
    assert torch.equal(fused(x, edge_index), pyg(x, edge_index))


def test_a_subclass_that_changes_the_message_is_not_overruled():
    class Doubled(GATConv):
        def message(self, x_j, alpha):
            return 2 * super().message(x_j, alpha)

    torch.manual_seed(0)
    conv = GATConv(**BASE, bias=False)
    doubled = Doubled(**BASE, bias=False)
    doubled.load_state_dict(conv.state_dict())
    x, edge_index = RANDOM.x(FEATURES), RANDOM.edge_index
    torch.testing.assert_close(doubled(x, edge_index), 2 * conv(x, edge_index))
