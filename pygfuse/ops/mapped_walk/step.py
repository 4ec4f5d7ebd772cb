"""Both directions of calls that are alike, written out once and kept with their form."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from pygfuse.ops.mapped_walk.backward_lines import written_backward
from pygfuse.ops.mapped_walk.forward_lines import written_forward
from pygfuse.ops.mapped_walk.shaped import Kind, Shaped, Wanted


class Step:
    """Calls of a kind, written out.

    Args:
        shaped: The calls.
        kind: What else they have in common.
        needed: Which tensors need a gradient; None where nobody differentiates.

    Attributes:
        forward: As of `pygfuse.ops.mapped_walk.forward_lines.Forward`.
        hands_out: Whether the result is what backward reads.
    """

    def __init__(self, shaped: Shaped, kind: Kind, needed: tuple[bool, ...] | None) -> None:
        self._kind, self._wanted = kind, None if needed is None else shaped.wanted(needed)
        self._written = written_forward(shaped, kind, () if self._wanted is None else _kept(self._wanted))
        self.forward, self.hands_out = self._written.run, self._written.hands_out

    @functools.cached_property
    def backward(self) -> Callable[..., tuple]:
        """As of `written_backward`; who never asks waits for no kernel of it."""
        return written_backward(self._wanted, self._kind, self._written)


def step_of(shaped: Shaped, like: Tensor, num_edges: int, needed: tuple[bool, ...] | None) -> Step:
    """What is written of calls over so many edges.

    Args:
        shaped: The calls.
        like: A tensor of the type and device of all.
        num_edges: The number of edges.
        needed: Which tensors need a gradient; None where nobody differentiates.
    """
    sharing = shaped.plan.walks(like).sharing(num_edges)
    key = like.dtype, sharing, needed
    found = shaped.steps.get(key)
    if found is None:
        found = shaped.steps[key] = Step(shaped, Kind((like.dtype, like.device), sharing), needed)
    return found


def _kept(wanted: Wanted) -> list[str]:
    """The names of what backward reads beside what it is given."""
    kept, plan = ['summed'] if wanted.reads_sums else [], wanted.shaped.plan
    if wanted.adjoint is None:
        return kept
    kept += ['out', 'statistics'] if plan.reads_output else []
    return kept + [f'tensor_{place}' for place in range(len(plan.tensors)) if place not in wanted.dropped]
