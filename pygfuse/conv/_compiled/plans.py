"""The plans of a layer: captured once for each kind of call, and as long as what was read of the layer is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pygfuse.compiler import Captured, Given, Plan, Reason, Refused
from pygfuse.compiler.capture.layers import device_of
from pygfuse.compiler.capture.watch import Guards
from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.made_edges.remade import Run
from pygfuse.compiler.symbols.numbers_of_rows import Rows

# a layer whose numbers change from call to call is not compiled for each of them
_MOST_CAPTURES = 16

Plans = dict[Any, list[tuple[Guards, Plan | str]]]


def planned(
    known: Plans, key: Any, capture: Callable[[Guards], Captured], num_edges: int | None = None, run: Run | None = None
) -> Plan | str:
    """The plan for a kind of call, or why there is none.

    Args:
        known: The plans of the layer, to which a new one is added.
        key: The kind of call.
        capture: Captures the layer, and notes what it reads.
        num_edges: Number of edges, where tensors of the layer may have a row for each.
        run: What a call of a module makes, which may read numbers of it.
    """
    plan = held(known, key, num_edges, run)
    if plan is not None:
        return plan
    if sum(map(len, known.values())) >= _MOST_CAPTURES:
        return f'what its message reads changed more than {_MOST_CAPTURES} times'
    guards = Guards(num_edges)
    try:
        plan = Plan.of(capture(guards))
    except Refused as refusal:
        plan = Reason.of(refusal)
    known.setdefault(key, []).append((guards, plan))
    return plan


def held(known: Plans, key: Any, num_edges: int | None = None, run: Run | None = None) -> Plan | str | None:
    """The plan that there is for a kind of call, or why there is none; None where nobody has looked for one."""
    return next((plan for guards, plan in known.get(key, ()) if guards.hold(num_edges, run)), None)


def _hashable(item: Any) -> Any:
    return item.kind if isinstance(item, Rows) else item


def key_of(given: Mapping[str, Any]) -> Any:
    """What a plan depends on of its arguments."""
    # of the type by default are tensors that a message makes
    return (
        torch.get_default_dtype(),
        device_of(given),
        *(
            (
                name,
                item.residency,
                item.is_stacked,
                item.of_row,
                item.of_edges,
                item.value.shape[item.residency != 'shared' :],
                item.value.dtype,
            )
            if isinstance(item, Given)
            else (name, type(item), rebuilt(item, _hashable))
            for name, item in given.items()
        ),
    )
