"""Arguments taken apart are those that are put together again."""

import collections

import pytest
import torch
from torch.utils._pytree import tree_flatten

from pygfuse.partial.rows.leaves import flattened, unflattened

Pair = collections.namedtuple('Pair', 'one other')
ARGUMENTS = {
    'flat': ((1, None, 'a'), {'dim': 2}),
    'none': ((), {}),
    'a list': (([1, 2], 3), {}),
    'a dictionary by name': ((1,), {'more': {'a': 2, 'b': (3, 4)}}),
    'a named tuple': ((Pair(1, 2), 3), {}),
    'a size': ((torch.Size([2, 3]),), {'out': None}),
}


@pytest.mark.parametrize('name', ARGUMENTS)
def test_put_together_again(name):
    args, kwargs = ARGUMENTS[name]
    leaves, structure = flattened(args, kwargs)
    assert leaves == tree_flatten((args, kwargs))[0]
    assert unflattened(leaves, structure) == (args, kwargs)
    doubled = unflattened([(leaf, leaf) for leaf in leaves], structure)
    assert tree_flatten(doubled)[0] == [part for leaf in leaves for part in tree_flatten((leaf, leaf))[0]]


def test_structures_are_compared_and_hashed():
    structures = [flattened(*arguments)[1] for arguments in ARGUMENTS.values()]
    assert len(set(structures)) == len(structures)
    assert flattened((1, 2), {'dim': 3})[1] == flattened((7, 8), {'dim': 9})[1] != flattened((1, 2), {'keepdim': 3})[1]
