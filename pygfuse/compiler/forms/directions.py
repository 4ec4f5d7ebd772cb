"""Walks of a few rows an edge, as of three directions, one for each: what all rows read of an edge is not copied.

Messages of equivariant networks are ``vector_j * a + b * direction``, ``[3, channels]``, where `a` and `b` have a row
of channels. One walk takes them as ``[3 * channels]``, copied for each direction, and so are their gradients.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from pygfuse.compiler.forms.lowering import Walk, lowered
from pygfuse.compiler.ir.values import EDGE, Node, value
from pygfuse.compiler.programs.emission import Factors
from pygfuse.compiler.refusal import Refused

# of more rows copies take less than walks that read everything for each
_MOST_ROWS = 4
# of narrower rows a walk is launches
_FEWEST_CHANNELS = 16


def with_directions(forms: Mapping[int, Any]) -> dict[int, Any]:
    """The same forms, of which walks have one for each row where these read the same numbers of an edge.

    Args:
        forms: By the identity of the value, as of `pygfuse.compiler.plan.plan.Plan`.
    """
    found = {}
    for key, form in forms.items():
        parts = _directions(form) if isinstance(form, Walk) else ()
        found[key] = dataclasses.replace(form, directions=parts) if parts else form
    return found


def _directions(walk: Walk) -> tuple[Walk, ...]:
    """The walks of each row of a message; none where one walk takes less."""
    shape = walk.message.shape
    rows = shape[0] if len(shape) > 1 else 1
    if not 1 < rows <= _MOST_ROWS or walk.message.width < rows * _FEWEST_CHANNELS:
        return ()
    if walk.program.softmax or walk.dropout > 0.0 or not any(_is_copied(o, rows) for o in walk.operands.values()):
        return ()
    parts = []
    with contextlib.suppress(Refused):
        for k in range(rows):
            message = value('index', walk.message, places=(k,))
            parts.append(lowered(value('reduce', message, reduce=walk.reduce)))
    is_mapped = any(_is_mapped(operand) for part in parts for operand in part.operands.values())
    return tuple(parts) if len(parts) == rows and not is_mapped else ()


def _is_copied(operand: Node | Factors, rows: int) -> bool:
    """Whether an operand is a row of an edge, once for each row of the message."""
    if not isinstance(operand, Node) or operand.residency != EDGE or operand.op != 'columns':
        return False
    take = operand.attributes['take']
    return take == take[: len(take) // rows] * rows


def _is_mapped(operand: Node | Factors) -> bool:
    """Whether features of edges are multiplied by a weight, which each walk would do."""
    return isinstance(operand, Factors) and operand.weight.op != 'placement'
