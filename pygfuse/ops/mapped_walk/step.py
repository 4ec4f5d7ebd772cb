"""Both directions of calls that are alike, written out once and kept with their form."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from pygfuse.ops.mapped_walk.backward_lines import written_backward
from pygfuse.ops.mapped_walk.forward_lines import written_forward
from pygfuse.ops.mapped_walk.shaped import Kind, Shaped, Wanted


class Step(NamedTuple):
    """Calls of a kind, written out.

    Attributes:
        forward: As of `pygfuse.ops.mapped_walk.forward_lines.Forward`.
        backward: As of `written_backward`; None where nobody differentiates.
        hands_out: Whether the result is what backward reads.
    """

    forward: Callable[..., tuple]
    backward: Callable[..., tuple] | None
    hands_out: bool


def step_of(shaped: Shaped, like: Tensor, num_edges: int, needed: tuple[bool, ...] | None) -> Step:
    """What is written of calls over so many edges.

    Args:
        shaped: The calls.
        like: A tensor of the type and device of all.
        num_edges: The number of edges.
        needed: Which tensors need a gradient; None where nobody differentiates.
    """
    is_shared = shaped.plan.walks(like).are_shared(num_edges)
    key = like.dtype, is_shared, needed
    found = shaped.steps.get(key)
    if found is None:
        found = shaped.steps[key] = _written(shaped, Kind((like.dtype, like.device), is_shared), needed)
    return found


def _written(shaped: Shaped, kind: Kind, needed: tuple[bool, ...] | None) -> Step:
    if needed is None:
        return Step(written_forward(shaped, kind, ()).run, None, False)
    wanted = shaped.wanted(needed)
    forward = written_forward(shaped, kind, _kept(wanted))
    return Step(forward.run, written_backward(wanted, kind, forward), forward.hands_out)


def _kept(wanted: Wanted) -> list[str]:
    """The names of what backward reads beside what it is given."""
    kept, plan = ['summed'] if wanted.reads_sums else [], wanted.shaped.plan
    if wanted.adjoint is None:
        return kept
    kept += ['out', 'statistics'] if plan.reads_output else []
    return kept + [f'tensor_{place}' for place in range(len(plan.tensors)) if place not in wanted.dropped]
