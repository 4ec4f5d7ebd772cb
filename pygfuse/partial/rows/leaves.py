"""What functions are called with, taken apart and put together again.

As torch's trees, which take most of a small layer's call; most arguments hold no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

# the number of positional arguments and the names of the others, or a tree
Structure = tuple[int, tuple[str, ...]] | TreeSpec

_CONTAINERS = (tuple, list, dict)


def flattened(args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], Structure]:
    """The leaves of arguments, and how they are put together.

    Example:
        >>> leaves, structure = flattened((1, 2), {'dim': 3})
        >>> leaves, unflattened(leaves, structure)
        ([1, 2, 3], ((1, 2), {'dim': 3}))
        >>> flattened(([1, 2],), {})[0]
        [1, 2]
    """
    leaves = [*args, *kwargs.values()]
    for leaf in leaves:
        if isinstance(leaf, _CONTAINERS):
            return tree_flatten((args, kwargs))
    return leaves, (len(args), tuple(kwargs))


def unflattened(leaves: Sequence[Any], structure: Structure) -> tuple[tuple, dict[str, Any]]:
    """The arguments that `flattened` took apart, of the same or of other leaves."""
    if type(structure) is not tuple:
        return tree_unflatten(leaves, structure)
    count, names = structure
    return tuple(leaves[:count]), dict(zip(names, leaves[count:], strict=True))
