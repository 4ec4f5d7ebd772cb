"""The packing of a kernel's arguments: the words, and the refusal of arguments of other types."""

from __future__ import annotations

import struct

import pytest
import torch

from pygfuse._lib.memo import Memo
from pygfuse.codegen.packing import Packed, bits_of, kinds_of, packed_when_met_again, packer, written_words

X, INDEX = torch.arange(6.0), torch.arange(4, dtype=torch.int32)
ARGUMENTS = (X, (INDEX, None), 5, -0.5, (), None)


def words(*arguments) -> list[int]:
    block = packer(kinds_of(arguments))(3, *arguments)
    assert block is not None
    return block.tolist()


def test_words_are_addresses_lengths_and_numbers():
    half = struct.unpack('q', struct.pack('d', -0.5))[0]
    assert words(*ARGUMENTS) == [0, 3, X.data_ptr(), 6, INDEX.data_ptr(), 4, 5, half]


@pytest.mark.parametrize(
    ('place', 'other'),
    [
        (0, X.double()),
        (0, None),
        (1, (INDEX.long(), None)),
        (1, (INDEX, INDEX)),
        (1, (INDEX,)),
        (2, 5.0),
        (3, 1),
        (4, (X,)),
        (5, X),
    ],
)
def test_arguments_of_other_types_are_refused(place: int, other: object):
    changed = [*ARGUMENTS]
    changed[place] = other
    assert packer(kinds_of(ARGUMENTS))(3, *changed) is None


def test_a_packed_tuple_has_the_words_of_the_tuple():
    arguments = X, INDEX
    kinds = Packed(arguments).kinds, int
    assert packer(kinds, (0,))(3, Packed(arguments), 7) == packer(kinds)(3, arguments, 7)
    # packed and unpacked have one machine code, but not one way to be packed
    assert kinds_of((Packed(arguments), 7)) == kinds_of((arguments, 7)) == kinds
    assert Packed(arguments).kinds is Packed(arguments).kinds
    assert packer(kinds, (0,))(3, arguments, 7) is None
    assert packer(kinds)(3, Packed(arguments), 7) is None
    assert packer(kinds, (0,))(3, Packed((X.double(), INDEX)), 7) is None


def test_a_tuple_is_packed_when_it_is_met_again():
    memo, made = Memo(), []

    def make() -> tuple:
        made.append(X)
        return (X,)

    found = [packed_when_met_again(memo, ('key',), make) for _ in range(3)]
    assert [type(one) for one in found] == [tuple, Packed, Packed]
    assert len(made) == 1
    assert found[1] is found[2]


def test_words_of_arguments_that_come_one_by_one():
    # objects of their own stand for what differs from call to call
    stand_ins = {'x': torch.empty(0), 'size': int('1000001'), 'scale': float('0.75')}
    given = (stand_ins['x'], (INDEX, None, stand_ins['size']), 5, stand_ins['scale'], -0.5)
    kept = []
    expressions = written_words(3, given, stand_ins, kept)
    assert [*map(id, kept)] == [id(INDEX)]
    for size, x, scale in ((7, X, 0.5), (-8, X[:2], 2.0)):
        scope = {'size': size, 'x': x, 'scale': scale, 'bits': bits_of}
        assert [eval(word, scope) for word in expressions] == words(x, (INDEX, None, size), 5, scale, -0.5)
