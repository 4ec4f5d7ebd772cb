"""What a message reads from around it is guarded, or refused: never a value of an earlier call."""

import copy
import functools
import time
from fractions import Fraction
from time import perf_counter

import numpy as np
import pytest
import torch
from torch_geometric.utils import softmax

import pygfuse
from tests.compiler import own_convs
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS

SCALE = 2.0
LISTED = [2.0]
WEIGHTS = torch.ones(8)
THIRD = Fraction(1, 3)


class Kept:
    shift = 1.0


class Constants(Kept):
    scale, lengths, weight = 2.0, [3.0], torch.ones(8)

    @staticmethod
    def doubled(x):
        return x * SCALE


def scaled(x):
    return x * SCALE


def listed(x, by=LISTED):
    return x * by[0]


def twice_scaled(x):
    return scaled(scaled(x))


def normalised(x, index, size):
    return softmax(x, index, num_nodes=size)


def given():
    example = GRAPHS['random']()
    return {'edge_index': example.edge_index, 'x': example.x(8)}


def layer(function, **attributes):
    """A layer with a message of its own."""
    # PyG looks methods up by their names
    function.__name__ = 'message'
    kind = type(f'Layer{next(_COUNT)}', (Own,), {'message': function, 'by': 2})
    conv = kind()
    for name, found in attributes.items():
        setattr(conv, name, found)
    return pygfuse.compile(conv)


_COUNT = iter(range(10**6))


def check(conv, change, reason=None):
    """The layer is PyG's before and after a change, fused but for a reason."""
    with pygfuse.ablation(fusion=False):
        for step in (lambda: None, change):
            step()
            torch.testing.assert_close(conv(**given()), pygfuse.unfuse(copy.deepcopy(conv))(**given()))
            assert conv.note.reason == reason


def around(value):
    """A message that reads a cell, and what changes the cell."""

    def message(self, x_j):
        return x_j * value

    def change():
        nonlocal value
        value = 5.0

    return message, change


def test_a_number_in_a_cell_is_read_again():
    message, change = around(2.0)
    check(layer(message), change)


def test_a_function_in_a_cell_is_watched(monkeypatch):
    function = scaled

    def message(self, x_j):
        return function(x_j)

    check(layer(message), lambda: monkeypatch.setitem(globals(), 'SCALE', 3.0))


@pytest.mark.parametrize(
    'message',
    [
        lambda self, x_j: x_j * SCALE,
        lambda self, x_j: twice_scaled(x_j),
        lambda self, x_j: (lambda x: x * SCALE)(x_j),
        lambda self, x_j: sum([x_j * SCALE for _ in range(2)]),
    ],
    ids=['itself', 'by a function', 'in a lambda', 'in a comprehension'],
)
def test_a_global_number_is_read_again(message, monkeypatch):
    check(layer(message), lambda: monkeypatch.setitem(globals(), 'SCALE', 3.0))


def test_a_function_that_is_replaced_is_captured_anew(monkeypatch):
    check(layer(lambda self, x_j: twice_scaled(x_j)), lambda: monkeypatch.setitem(globals(), 'scaled', torch.neg))


def test_a_function_that_the_layer_holds_is_watched(monkeypatch):
    conv = layer(lambda self, x_j: self.act(x_j), act=lambda x: x * SCALE)
    check(conv, lambda: monkeypatch.setitem(globals(), 'SCALE', 3.0))


def test_a_name_that_is_nowhere_is_read_where_its_branch_is_taken(monkeypatch):
    def message(self, x_j):
        return x_j * NOWHERE if self.by > 2 else x_j * SCALE  # noqa: F821

    conv = layer(message)
    check(conv, lambda: monkeypatch.setitem(globals(), 'SCALE', 3.0))
    conv.by = 3
    with pytest.raises(NameError, match='NOWHERE'):
        conv(**given())
    monkeypatch.setitem(globals(), 'NOWHERE', 5.0)
    check(conv, lambda: monkeypatch.setitem(globals(), 'NOWHERE', 6.0))


@pytest.mark.parametrize(
    ('message', 'owner', 'name', 'found'),
    [
        (lambda self, x_j: x_j * Constants.scale, Constants, 'scale', 3.0),
        (lambda self, x_j: x_j + Constants.shift, Kept, 'shift', 3.0),
        (lambda self, x_j: x_j + Constants.shift, Constants, 'shift', 3.0),
        (lambda self, x_j: x_j * Constants.lengths[0], Constants, 'lengths', [4.0]),
        (
            lambda self, x_j: sum([Constants.doubled(x_j) for _ in range(2)]),
            Constants,
            'doubled',
            staticmethod(torch.neg),
        ),
    ],
    ids=['its own', 'of the class behind', 'its own later', 'a list', 'a function'],
)
def test_attributes_of_a_class_are_read_again(message, owner, name, found, monkeypatch):
    check(layer(message), lambda: monkeypatch.setattr(owner, name, found, raising=False))


def test_attributes_of_a_class_in_a_cell_are_read_again():
    class Held:
        scale = 2.0

    check(layer(lambda self, x_j: x_j * Held.scale), lambda: setattr(Held, 'scale', 3.0))


def test_a_class_that_is_replaced_is_captured_anew(monkeypatch):
    check(layer(lambda self, x_j: x_j + Constants.shift), lambda: monkeypatch.setitem(globals(), 'Constants', Kept))
    monkeypatch.setattr(Kept, 'shift', 2.0)
    check(layer(lambda self, x_j: x_j + Constants.shift), lambda: monkeypatch.setattr(Kept, 'shift', 4.0))


def test_softmax_within_a_function_is_fused():
    check(layer(lambda self, x_j, index, size_i: normalised(x_j, index, size_i) * x_j), lambda: None)


class Parent(Own):
    factor = 2.0

    def message(self, x_j, index, size_i):
        return softmax(x_j * SCALE, index, num_nodes=size_i) * x_j

    @staticmethod
    def doubled(x):
        return x * SCALE


class Child(Parent):
    def message(self, x_j, index, size_i):
        return self.doubled(super().message(x_j, index, size_i)) * super().factor


def test_an_inherited_message_is_watched(monkeypatch):
    check(pygfuse.compile(Child()), lambda: monkeypatch.setitem(globals(), 'SCALE', 3.0))
    check(pygfuse.compile(Child()), lambda: monkeypatch.setattr(Parent, 'factor', 3.0))


class ByName(Parent):
    """What it inherits, and functions of classes, by the names of these."""

    def message(self, x_j, index, size_i):
        return ByName.doubled(Parent.message(self, x_j, index, size_i)) * ByName.factor


@pytest.mark.parametrize(
    'change',
    [
        lambda patch: patch.setitem(globals(), 'SCALE', 3.0),
        lambda patch: patch.setattr(Parent, 'factor', 3.0),
        lambda patch: patch.setattr(Parent, 'doubled', staticmethod(torch.neg)),
        lambda patch: patch.setattr(Parent, 'message', lambda self, x_j, index, size_i: x_j * SCALE),
    ],
)
def test_what_a_layer_reads_of_classes_of_layers_is_watched(change, monkeypatch):
    check(pygfuse.compile(ByName()), lambda: change(monkeypatch))


class NamedChild(Parent):
    """``super`` as Python 2 has it."""

    def message(self, x_j, index, size_i):
        found = super(NamedChild, self).message(x_j, index, size_i)  # noqa: UP008
        return sum([self.doubled(found) * super(NamedChild, self).factor for _ in range(1)])


def test_super_of_a_class_by_its_name(monkeypatch):
    check(pygfuse.compile(NamedChild()), lambda: monkeypatch.setattr(Parent, 'factor', 3.0))


def test_super_of_a_class_within_a_function():
    class Local(Parent):
        def message(self, x_j, index, size_i):
            return super(Local, self).message(x_j, index, size_i)  # noqa: UP008

    check(pygfuse.compile(Local()), lambda: None)


def _nothing():
    pass


def _rolled_or_not(self, x_j):
    try:
        return torch.roll(x_j, 1, -1)
    except Exception:
        return x_j


def _rolled_whatever(self, x_j):
    try:
        found = torch.roll(x_j, 1, -1)
    except:  # noqa: E722
        found = x_j
    return found


def _within_a_block(self, x_j):
    with torch.enable_grad():
        found = [x_j * k for k in range(1, 3)]
    return found[0] + found[1]


def _listing(self, x_j):
    self.seen.append(3)
    return x_j * 2.0


def _adding(self, x_j):
    self.seen += [3]
    return x_j * 2.0


def test_a_block_is_no_handler_of_errors():
    check(layer(_within_a_block), lambda: None)


def _counts(self, x_j):
    global SCALE
    SCALE = SCALE + 0.0
    return x_j


@pytest.mark.parametrize(
    ('message', 'reason', 'attributes'),
    [
        (_rolled_or_not, 'it catches errors, which a capture may raise where no call does', {}),
        (_rolled_whatever, 'it catches errors, which a capture may raise where no call does', {}),
        (_listing, 'it writes into seen, a list of the layer', {'seen': []}),
        (_adding, 'it writes into seen, a list of the layer', {'seen': []}),
        (lambda self, x_j: x_j * WEIGHTS, 'it reads WEIGHTS from around it', {}),
        (lambda self, x_j: x_j * len([Constants]), 'it reads Constants from around it', {}),
        (lambda self, x_j: x_j * Constants().scale, 'it reads Constants from around it', {}),
        (lambda self, x_j: x_j * isinstance(x_j, Constants), 'it reads Constants from around it', {}),
        (lambda self, x_j: x_j * Constants.weight, 'it reads weight from around it', {}),
        (lambda self, x_j: x_j * Constants.__name__.count('s'), 'it reads __name__ of Constants', {}),
        (
            lambda self, x_j: Constants.lengths.append(2) or x_j,
            'it writes into lengths, a list of the code around it',
            {},
        ),
        (lambda self, x_j: super(Own, self).message(x_j) * Own.__basicsize__, 'it reads Own from around it', {}),
        (lambda self, x_j: x_j * Own.__basicsize__, 'it reads __basicsize__ of Own', {}),
        (lambda self, x_j: x_j * (perf_counter() > 0), 'it reads perf_counter from around it', {}),
        (lambda self, x_j: x_j * (time.time() > 0), 'it reads time from around it', {}),
        (lambda self, x_j: x_j * len(own_convs.__name__), 'it reads __name__ of tests.compiler.own_convs', {}),
        (lambda self, x_j: sum([x_j * WEIGHTS for _ in range(1)]), 'it reads WEIGHTS from around it', {}),
        (around(np.ones(8))[0], 'it reads value from around it', {}),
        (around(torch.ones(8))[0], 'it reads value from around it', {}),
        (lambda self, x_j: listed(x_j), 'a default of listed is a list', {}),
        (
            lambda self, x_j: x_j * float(self.by),
            'it reads by of the layer, a Fraction',
            {'by': THIRD},
        ),
        (lambda self, x_j: x_j * self.by[0][0], 'it reads by of the layer, a tuple', {'by': (LISTED,)}),
        (
            lambda self, x_j: self.act(x_j),
            'it reads act of the layer, a partial',
            {'act': functools.partial(torch.mul, other=2)},
        ),
        (lambda self, x_j: x_j * self.__class__.by, 'it reads __class__, which cannot be guarded', {'by': 2}),
        (lambda self, x_j: x_j * type(self).by, 'it reads type, which cannot be guarded', {'by': 2}),
        (_counts, 'it writes to SCALE around it', {}),
        (
            lambda self, x_j: x_j * (2 if torch.is_grad_enabled() else 3),
            'it reads is_grad_enabled, which cannot be guarded',
            {},
        ),
    ],
)
def test_what_cannot_be_guarded_is_refused(message, reason, attributes):
    check(layer(message, **attributes), _nothing, reason)


@pytest.mark.parametrize(
    ('message', 'reason'),
    [
        (
            lambda self, x_j: x_j * float(np.random.rand()),
            'it reads random, which cannot be guarded',
        ),
        (lambda self, x_j: x_j * torch.rand(()).item(), 'item of a tensor'),
        (lambda self, x_j: x_j * float(torch.rand(())), '__float__ of a tensor'),
    ],
)
def test_random_numbers_are_not_kept(message, reason):
    conv = layer(message)
    first, second = conv(**given()), conv(**given())
    assert not torch.equal(first, second)
    assert conv.note.reason == reason


@pytest.mark.parametrize('called_before', [False, True])
def test_a_parametrization_is_read_as_often_as_by_pyg(called_before):
    counts = []

    class Counting(torch.nn.Module):
        def forward(self, weight):
            counts.append(1)
            return weight

    conv = pygfuse.compile(own_convs.NaiveAttention())
    if called_before:
        conv(**given())
        assert conv.note.reason is None
    torch.nn.utils.parametrize.register_parametrization(conv.score, 'weight', Counting())
    counts.clear()
    conv(**given())
    assert conv.note.reason == 'weight is parametrized'
    assert len(counts) == 1


# Functions of torch.jit.script


@torch.jit.script
def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * y


@torch.jit.script
def unlike_python(x: torch.Tensor) -> torch.Tensor:
    if torch.jit.is_scripting():
        x = 2 * x
    return x


class Scripted(Own):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def message(self, x_i, x_j):
        return self.function(x_i, gated(x_i, x_j))


def test_a_function_that_is_scripted_is_read_as_it_was_written():
    conv = Scripted(gated)
    fused = pygfuse.compile(copy.copy(conv))
    torch.testing.assert_close(fused(**given()), conv(**given()))
    assert fused.note.reason is None


class AsksWhetherItIsScripted(Own):
    def message(self, x_j):
        return unlike_python(x_j)


def test_a_function_that_asks_whether_it_is_scripted_is_left():
    conv, fused = AsksWhetherItIsScripted(), pygfuse.compile(AsksWhetherItIsScripted())
    assert torch.equal(fused(**given()), conv(**given()))
    assert fused.note.reason == 'it reads unlike_python from around it'


class Choosing(Own):
    """What it computes is chosen once, and held as a method of its own."""

    def __init__(self, other=None):
        super().__init__()
        self.factor = 2.0
        self.chosen = self.scaled if other is None else other.scaled

    def scaled(self, x):
        return x * self.factor * SCALE

    def shifted(self, x):
        return x + self.factor

    def message(self, x_j):
        return self.chosen(x_j)


@pytest.mark.parametrize(
    'change',
    [
        lambda conv: setattr(conv, 'factor', 3.0),
        lambda conv: setattr(conv, 'chosen', conv.shifted),
        lambda conv: setattr(conv, 'chosen', torch.neg),
    ],
    ids=['a number of it', 'another method', 'a function'],
)
@pytest.mark.parametrize('other', [None, Choosing()], ids=['its own', "another layer's"])
def test_methods_that_a_layer_holds_are_watched(other, change, monkeypatch):
    conv = pygfuse.compile(Choosing(other))
    check(conv, lambda: change(conv))
    check(conv, lambda: monkeypatch.setitem(globals(), 'SCALE', 5.0))
    if other is not None:
        check(conv, lambda: setattr(other, 'factor', 7.0))


def test_a_copy_of_a_layer_that_holds_a_method_has_its_own():
    conv = copy.deepcopy(pygfuse.compile(Choosing()))
    check(conv, lambda: setattr(conv, 'factor', 3.0))
