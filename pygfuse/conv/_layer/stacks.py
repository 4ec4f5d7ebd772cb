"""A plan over several features in one tensor, ``[*, nodes, channels]``: side by side, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.note import Note
from pygfuse.compiler import Plan
from pygfuse.ops import Edges

# numbers in a row that is walked at once: kernels are compiled for each width
_WIDEST = 512


def run_over_stacks(
    plan: Plan, edges: Edges, tensors: Mapping[str, Tensor], stacks: Mapping[str, Tensor], note: Note | None = None
) -> Any:
    """What a plan gives of stacks, stacked.

    Args:
        plan, edges, tensors, note: As of `pygfuse.compiler.plan.plan.Plan.run`.
        stacks: The tensors that are stacked, which are no more than the first of each among `tensors`.
    """
    widths = {stack.shape[2] for stack in stacks.values()}
    if len(widths) == 1 and plan.of_width(widths.pop()) is not None:
        return _side_by_side(plan, edges, tensors, stacks, note)
    return one_after_the_other(lambda one: plan.run(edges, {**tensors, **one}, note), stacks)


def one_after_the_other(run: Callable[[dict[str, Tensor]], Any], stacks: Mapping[str, Tensor]) -> Any:
    """What a function gives of each of several features, stacked."""
    count = next(iter(stacks.values())).shape[0]
    return _stacked([run({name: stack[k] for name, stack in stacks.items()}) for k in range(count)])


def in_rows(stack: Tensor) -> Tensor:
    """Features of several copies side by side, ``[nodes, copies * channels]``.

    Example:
        >>> in_rows(torch.arange(4).view(2, 2, 1)).tolist()
        [[0, 2], [1, 3]]
    """
    return stack.transpose(0, 1).reshape(stack.shape[1], -1)


def in_stacks(rows: Tensor, copies: int) -> Tensor:
    """Rows as features of so many copies again, ``[copies, nodes, channels]``."""
    return rows.view(len(rows), copies, -1).transpose(0, 1)


def parts_of(count: int, channels: int) -> Iterator[slice]:
    """Copies that are walked at once: powers of two, so that any number of copies takes few kernels.

    Example:
        >>> [part.stop - part.start for part in parts_of(13, 64)]
        [8, 4, 1]
    """
    first, most = 0, max(_WIDEST // max(channels, 1), 1)
    while first < count:
        size = 1 << (min(count - first, most).bit_length() - 1)
        yield slice(first, first + size)
        first += size


def joined(found: Sequence[Tensor]) -> Tensor:
    """Parts of stacks as one, contiguous as PyG's results are."""
    return found[0].contiguous() if len(found) == 1 else torch.cat(list(found))


def _side_by_side(
    plan: Plan, edges: Edges, tensors: Mapping[str, Tensor], stacks: Mapping[str, Tensor], note: Note | None
) -> Tensor:
    count, _, channels = next(iter(stacks.values())).shape
    found = []
    for part in parts_of(count, channels):
        copies = part.stop - part.start
        rows = {name: in_rows(stack[part]) for name, stack in stacks.items()}
        out = plan.of_width(copies * channels).run(edges, {**tensors, **rows}, note)
        found.append(in_stacks(out, copies))
    return joined(found)


def _stacked(found: Sequence[Any]) -> Any:
    """The results of each of several features in one tensor, or in one for each that there are."""
    return tuple(map(_stacked, zip(*found, strict=True))) if isinstance(found[0], tuple) else torch.stack(list(found))
