"""Which number of a value stands where: views and broadcasts as lists of places, which no program has to know."""

from __future__ import annotations

import functools

import numpy as np
import torch

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import SHARED, Node

# places of numbers in a row; -1 stands for 0
Places = tuple[int, ...]


def everything(width: int) -> Places:
    """A row as it is."""
    return tuple(range(width))


def repeated(heads: int, channels: int) -> Places:
    """A number a head, spread over the head's channels."""
    return tuple(i // channels for i in range(heads * channels))


def are_in_a_row(places: Places) -> bool:
    """Whether numbers stand one behind the other."""
    return places[0] >= 0 and places == tuple(range(places[0], places[0] + len(places)))


def through(inner: Places, outer: Places) -> Places:
    """The places `outer` of a row made of the places `inner`."""
    return tuple(inner[i] if i >= 0 else -1 for i in outer)


def unviewed(node: Node) -> Node:
    """What a value is another view of, all of its numbers in any order; itself, if it is none.

    Example:
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x = leaf('x_j', 'source', (4,), torch.float32)
        >>> unviewed(value('reshape', x, shape=(2, 2))) is x
        True
    """
    while node.op in OPERATIONS and OPERATIONS[node.op].selects and node.width == node.args[0].width:
        node = node.args[0]
    return node


def of_view(node: Node) -> Places:
    """For each number of a view, its place in what is viewed."""
    (viewed,) = node.args
    places = torch.arange(viewed.width).view(1, *viewed.shape)
    attributes = node.attributes
    return tuple(OPERATIONS[node.op].run(places, **attributes).reshape(-1).tolist())


@functools.lru_cache(maxsize=1024)
def of_broadcast(shape: tuple[int, ...], result: tuple[int, ...]) -> Places:
    """For each number of `result`, its place in a row of `shape` that is broadcast to it."""
    places = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return tuple(int(i) for i in np.broadcast_to(places, result).reshape(-1))


def of_argument(node: Node, argument: Node) -> Places:
    """For each number of an elementwise operator's result, its place in an argument."""
    shape = argument.shape
    if argument.residency == SHARED and len(shape) > len(node.shape):
        shape = shape[1:]
    return of_broadcast(shape, node.shape)


def of_sum(node: Node) -> np.ndarray:
    """For each number of a sum within rows, the places that it sums: ``[numbers, summed]``."""
    (summed,) = node.args
    dims = [d - 1 for d in node.attributes['dims']]
    places = np.arange(summed.width).reshape(summed.shape)
    count = int(np.prod([summed.shape[d] for d in dims], dtype=np.int64))
    kept = [d for d in range(places.ndim) if d not in dims]
    return places.transpose(*kept, *dims).reshape(-1, count)
