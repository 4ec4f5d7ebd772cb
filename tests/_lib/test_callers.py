"""What callers write into, by the names in their code."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn
from torch_geometric import EdgeIndex

from pygfuse._lib import callers
from pygfuse._lib.callers import kept_from_callers, written_by_callers


def layer(*values):
    return len(written_by_callers(values))


def by_operator(x, mask):
    found = layer(x)
    x += 1
    return found


def by_method(x, mask):
    found = layer(x)
    x.mul_(2).relu_()
    return found


def by_index(x, mask):
    found = layer(x)
    x[mask] = 0
    return found


def by_slice(x, mask):
    found = layer(x)
    x[1:] = 0
    return found


def by_another_name(x, mask):
    found = layer(x)
    before = x
    before += 1
    return found


def by_names_of_several(x, mask):
    found, rest = layer(x), 2
    before, other = x, rest
    x = x[mask]
    before[mask] = other
    return found


def by_a_view(x, mask):
    part = x[:2]
    found = layer(x)
    part += 1
    return found


def in_a_tuple(x, mask):
    pair = (x, x)
    found = layer(pair)
    pair[0][mask] = 0
    return found


class Inner(nn.Module):
    def forward(self, x):
        return layer(x)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        out = self.inner(x)
        x += 1
        return out


def by_a_module_around(x, mask):
    return Residual()(x)


def results_alone(x, mask):
    out = x * layer(x)
    out += x
    out[mask] = 0
    out.mul_(2)
    return int(out.sum())


def other_memory(x, mask):
    copy = x.clone()
    found = layer(x)
    copy += 1
    return found


def counters(x, mask):
    count, total = 0, []
    for _ in range(2):
        count += layer(x)
        total += [count]
    return count


def by_a_view_at_once(x, mask):
    found = layer(x)
    x.view(-1).add_(1)
    x.t().mul_(2)
    return found


def by_a_part_of_a_part(x, mask):
    found = layer(x)
    x[:2][0] = 1
    return found


def by_an_operator_at_an_index(x, mask):
    found = layer(x)
    x[mask] += x[0]
    return found


def results_of_calls_at_once(x, mask):
    out = (x * layer(x)).relu_().add_(1)
    out[mask] = (out + x)[mask]
    return int(out.sum() * 0) + int(layer(x))


def results_at_an_index(x, mask):
    out = torch.ones(3)
    out[mask] = x[mask] + layer(x)
    out[1:] += x[1:]
    out = (out - layer(x)).clamp_(0, 0) * x
    return int(out.sum())


def by_the_outermost(x, mask):
    def within(y):
        other = y.clone()
        found = layer(y)
        other += 1
        return found

    found = within(x)
    x += 1
    return found


def before(x, mask):
    x += 1
    x[mask] = 0
    x.mul_(2)
    return layer(x)


def in_a_loop(x, mask):
    found = 0
    for _ in range(2):
        if found:
            x += 1
        found = layer(x)
    return found


def in_a_loop_before(x, mask):
    for _ in range(2):
        x += 1
    return layer(x)


def in_a_loop_behind(x, mask):
    found = layer(x)
    while found and bool(x.sum() < 3):
        x[mask] += 1
    return found


WRITTEN = [
    by_operator, by_method, by_index, by_slice, by_another_name, by_names_of_several, by_a_view, in_a_tuple,
    by_a_module_around, in_a_loop, in_a_loop_behind, by_a_view_at_once, by_a_part_of_a_part, by_an_operator_at_an_index,
]  # fmt: skip
# what is around a function that is no module's is not looked at: frames of a training loop have many names
KEPT = [
    results_alone,
    other_memory,
    counters,
    by_the_outermost,
    before,
    in_a_loop_before,
    results_of_calls_at_once,
    results_at_an_index,
]


@pytest.mark.parametrize('function', WRITTEN, ids=lambda one: one.__name__)
def test_what_is_written_into(function):
    for _ in range(2):
        assert function(torch.zeros(3), torch.tensor([True, False, True])) == 1


@pytest.mark.parametrize('function', KEPT, ids=lambda one: one.__name__)
def test_what_is_not(function):
    for _ in range(2):
        assert function(torch.zeros(3), torch.tensor([True, False, True])) == 0


def test_copies_of_one_tensor_are_one_tensor():
    def written(x, y):
        given = kept_from_callers({'x': (x, x), 'y': y, 'count': 3, 'edge_index': x.long()})
        x += 1
        return given

    x, y = torch.zeros(2, requires_grad=True) * 1.0, torch.ones(2)
    given = written(x, y)
    first, second = given['x']
    assert first is second
    assert first.grad_fn is not None
    assert first.tolist() == [0.0, 0.0]
    assert given['y'] is y
    assert given['count'] == 3
    with torch.no_grad():
        assert written(x, y)['x'][0] is x


def test_classes_that_wrap_tensors_are_left_alone():
    def written(x, edge_index):
        given = kept_from_callers({'x': x, 'edge_index': edge_index})
        x += 1
        edge_index[0, 0] = 0
        return given

    edge_index = EdgeIndex([[0, 1], [1, 0]])
    given = written(torch.zeros(2), edge_index)
    assert given['edge_index'] is edge_index
    assert given['x'].tolist() == [0.0, 0.0]


def test_a_look_keeps_nothing_alive_and_leaves_what_others_hold():
    def written(x, holds):
        before = torch.zeros(3)
        alive, held = weakref.ref(before), locals() if holds else None
        found = layer(x)
        del before
        x += 1
        return found, alive() is not None, held

    assert written(torch.zeros(3), False) == (1, False, None)
    found, is_alive, held = written(torch.zeros(3), True)
    assert (found, is_alive) == (1, True)
    assert held['holds'] is True


def test_frames_are_bounded(monkeypatch):
    monkeypatch.setattr(callers, '_MOST_FRAMES', 3)
    assert by_a_module_around(torch.zeros(3), None) == 0


def test_code_that_is_known_is_bounded(monkeypatch):
    monkeypatch.setattr(callers, '_MOST_CODE', 3)
    monkeypatch.setattr(callers, '_known', {})
    for _ in range(8):
        scope = {'layer': layer}
        exec('def written(x):\n    found = layer(x)\n    x += 1\n    return found\n', scope)
        assert scope['written'](torch.zeros(1)) == 1
    assert len(callers._known) <= 3
