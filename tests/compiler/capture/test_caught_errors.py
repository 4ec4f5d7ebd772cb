"""Code that catches errors is captured where no call comes there."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

import pygfuse
from pygfuse.compiler.capture.caught_errors import CATCHES, lines_that_catch
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 20, 90, 4
# before, ranges are known up to where a handler begins
KNOWS_RANGES = sys.version_info >= (3, 11)


class Joined(nn.Module):
    """Further features are joined, whose shape may be wrong."""

    def __init__(self):
        super().__init__()
        self.lin, self.joined = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, edge_index, more=None):
        out = torch.zeros_like(x).index_add(0, edge_index[1], self.lin(x)[edge_index[0]].relu())
        return self.join(out, more)

    def join(self, out, more):
        if more is not None:
            try:
                out = self.joined(torch.cat([out, more], dim=1))
            except RuntimeError:
                out = out * 2
        return out


class Message(MessagePassing):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        with torch.no_grad():
            shift = x_j * 0.5
        if self.scale is None:
            return x_j + shift
        # all errors, the capture's own among them
        try:
            return x_j * float(self.scale)
        except Exception:
            return x_j - shift


class Within(Joined):
    """In a function within another one, and in one that waits."""

    def join(self, out, more):
        def found(x):
            if more is None:
                return x.sin()
            try:
                return x.item()
            except BaseException:
                return x.cos()

        return torch.stack([found(part) for part in out.unbind(1)], dim=1)


class HandedOn(Joined):
    """What catches errors is called by something else that does."""

    def join(self, out, more):
        def caught(x):
            try:
                return x.item()
            except BaseException:
                return x.cos()

        return self.calling(caught, out)

    def calling(self, function, out):
        if out is None:
            try:
                out = function(out)
            except TypeError:
                out = 0
        return function(out)


class Waiting(Joined):
    def forward(self, x, edge_index):
        return sum(super().forward(x, edge_index))

    def join(self, out, more):
        def parts():
            try:
                yield out.item()
            except BaseException:
                yield out

        return parts()


def arguments():
    torch.manual_seed(0)
    return {'x': torch.randn(NODES, WIDTH), 'edge_index': random_edges(NODES, NODES, EDGES)}


def assert_own(compiled, module, given, reason):
    torch.testing.assert_close(compiled(**given), module(**given))
    assert compiled.note.reason == reason or not KNOWS_RANGES


@pytest.mark.parametrize('kind', [Joined, Within])
def test_what_is_caught_is_for_the_own_code(kind):
    module, given, before = kind(), arguments(), sys.gettrace()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for more, reason in ((None, None), (torch.randn(NODES, WIDTH), CATCHES), (torch.randn(NODES, 1), CATCHES)):
        if kind is Joined or more is None:
            assert_own(compiled, module, {**given, 'more': more}, reason)
    assert_own(compiled, module, given, None)
    assert sys.gettrace() is before


def test_what_is_caught_of_a_message():
    given = arguments()
    compiled = pygfuse.compile(Message(None))
    for scale, reason in ((None, None), (2.0, CATCHES), ('a', CATCHES), (None, None)):
        compiled.scale = scale
        assert_own(compiled, Message(scale), given, reason)


def test_what_is_handed_on_is_watched():
    module, given, before = HandedOn(), arguments(), sys.gettrace()
    compiled = pygfuse.compile(copy.deepcopy(module))
    assert_own(compiled, module, given, CATCHES)
    assert sys.gettrace() is before


def test_a_capture_s_own_errors_are_not_caught():
    compiled, given = pygfuse.compile(Within()), arguments()
    compiled(**given, more=torch.ones(()))
    assert compiled.note.reason == CATCHES


def test_what_waits_is_for_the_own_code():
    module, given = Waiting(), arguments()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**given), module(**given))
    assert compiled.note.reason == CATCHES


def with_block(x):
    with torch.no_grad():
        return x + 1


def finally_block(x):
    x = x + 1
    try:
        x = x * 2
    finally:
        x = x - 1
    return x


def test_lines():
    first = finally_block.__code__.co_firstlineno
    lines = lines_that_catch(finally_block.__code__)
    assert first + 3 in lines
    assert first + 1 not in lines
    assert not lines_that_catch(with_block.__code__)
