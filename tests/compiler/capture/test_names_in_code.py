"""How code reads names from around it."""

from __future__ import annotations

import dis

import pytest

from pygfuse.compiler.capture.names_in_code import NamesRead, is_called


class Parent:
    pass


class Held:
    scale = 2


def for_attributes(self):
    return [Held.scale for _ in range(2)], Held.scale


def for_more(self):
    return Held.scale, Held


def for_super(self):
    return super(Parent, self)


@pytest.mark.parametrize(
    ('function', 'supers', 'attributes'),
    [(for_attributes, set(), {'Held'}), (for_more, set(), set()), (for_super, {'Parent'}, set())],
)
def test_what_names_are_read_for(function, supers, attributes):
    read = NamesRead.by(function.__code__)
    assert read.for_super - {'super'} == supers
    assert read.for_attributes & {'Held', 'Parent'} == attributes


CALLED = {
    'plain': lambda x: len(x),
    'of an expression': lambda x: len(x.y(1, k=[x, 2])[3:]) + 1,
    'by a name': lambda x: int(x=x),
    'within a call': lambda x: print(len(x), x),
    'in an argument': lambda x: x.zeros(len(x), x.shape[1], dtype=x.dtype),
}
READ = {
    'itself': lambda x: len,
    'as an argument': lambda x: map(len, x),
    'its attribute': lambda x: len.__name__(x),
    'an item of it': lambda x: len[x],
    'before a call': lambda x: [len, x.y()],
}


def calls(function):
    """Whether each read of a builtin's name is for a call."""
    instructions = list(dis.get_instructions(function.__code__))
    places = [k for k, one in enumerate(instructions) if one.argval in ('len', 'int')]
    return [is_called(instructions, place) for place in places]


@pytest.mark.parametrize('name', CALLED)
def test_names_that_are_called(name):
    assert calls(CALLED[name]) == [True]


@pytest.mark.parametrize('name', READ)
def test_names_that_are_read_for_something_else(name):
    assert calls(READ[name]) == [False]
