"""What a tensor is indexed by, as it is recorded."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from pygfuse.compiler.refusal import Refused


def as_key(key: Any) -> Any:
    """A key in which each part is of one dimension, whether lists become tuples or not.

    A list is the places of one dimension, where a tuple has a part for each.

    Args:
        key: Of ``tensor[key]``.

    Raises:
        Refused: If it is a list of anything but numbers, which torch may take for a tuple.

    Example:
        >>> as_key([0, 1]), as_key((slice(None), [0, 1])), as_key(np.array([2]))
        (([0, 1],), (slice(None, None, None), [0, 1]), ([2],))
    """
    if isinstance(key, tuple):
        return tuple([part.tolist() if isinstance(part, np.ndarray) else part for part in key])
    if isinstance(key, np.ndarray):
        return (key.tolist(),)
    if not isinstance(key, list):
        return key
    if not all(isinstance(part, (numbers.Number, np.generic)) for part in key):
        raise Refused('an index by a list of lists or values')
    return (key,)
