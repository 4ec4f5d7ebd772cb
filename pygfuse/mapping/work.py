"""What walks and PyG's operators in their place are made of, and along how many edges the former take less."""

from __future__ import annotations

from typing import NamedTuple

from pygfuse.mapping import few_edges


class Work(NamedTuple):
    """What walks, and operators of nodes around them, stand for, counted.

    Attributes:
        captured: PyG's operators; a softmax is `OPERATORS_OF_A_SOFTMAX`.
        on_edges: Those of them that are on edges.
        numbers: How many numbers of an edge they have in memory.
        operations: How many additions, multiplications and functions they compute for an edge.
        operators: Operators of nodes that are left.
        views: Slices and other views of nodes that are left.
        walks: Walks over the edges.
        operands: What they read.
        returned: Those that give a value for each edge.
        sets: Sets of edges; one more where it makes them anew in each call.
        is_of_a_module: Whether it is a module's, whose arguments are looked at in each call.
    """

    captured: int
    on_edges: int
    numbers: int
    operations: int
    operators: int
    views: int
    walks: int
    operands: int
    returned: int
    sets: int
    is_of_a_module: bool


# a maximum, differences, exponentials, a sum, its rows and quotients
OPERATORS_OF_A_SOFTMAX = 6


def fewest_of_work(work: Work) -> int:
    """From how many edges on PyG's operators take more, by what each side takes for however few, and PyG's for an edge.

    Fitted to training steps along 100 to 5,000 edges, in us.

    Args:
        work: What it is about.

    Example:
        >>> attention = Work(16, 11, 208, 212, 6, 0, 1, 3, 0, 1, False)
        >>> fewest_of_work(attention), fewest_of_work(attention._replace(operands=11, operators=21, views=5))
        (1, 3954)
    """
    ours = 4.5 * work.operands + 19 * work.operators + 35 * work.views + 135 * work.returned + 440 * (work.sets - 1)
    ours += 55 if work.is_of_a_module else 0
    theirs = 7 * work.captured + 50
    an_edge = 0.0087 * work.walks + 0.0054 * work.on_edges + 0.00022 * work.numbers + 0.0000135 * work.operations
    most = (ours - theirs) / an_edge
    return int(min(max(most, 0), few_edges.MOST_OF_WORK)) + 1
