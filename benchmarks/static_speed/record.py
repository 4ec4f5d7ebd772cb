"""Figures of kernels as rows of a result, and what is worse than the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pygfuse.bench.schema import Row
from pygfuse.cuda.layout import ITEM_BYTES, Layout
from static_speed.estimate import DEVICES, estimated
from static_speed.figures import Figures
from static_speed.occupancy import MULTIPROCESSORS, WARP

# what a change may cost before it counts: compilers choose a little differently each time the text differs
SLACK = 0.03
MORE_IS_WORSE = ('registers', 'spills', 'instructions', 'bytes')
LESS_IS_WORSE = ('warps', 'loads in flight')


def values_of(figures: Figures, architecture: str, layout: Layout) -> dict[str, Any]:
    """Figures by name, the architecture's before it; for walks the estimate, too."""
    edge = figures.edge
    found: dict[str, Any] = {
        'registers': figures.registers,
        'spills': figures.spills,
        'warps': figures.warps,
        'occupancy': figures.warps / MULTIPROCESSORS[architecture].warps,
    }
    if edge is not None:
        item = ITEM_BYTES[layout.element]
        times, slowest = estimated(edge, layout.heads * layout.channels * item, item, DEVICES[architecture])
        found |= {
            'instructions': edge.instructions,
            'bytes': edge.bytes,
            'loads in flight': edge.loads_in_flight,
            'KB in flight': round(edge.bytes_in_flight * WARP * figures.warps / 1024, 1),
            'estimate': times,
            'slowest': slowest,
        }
    return {f'{architecture} {name}': value for name, value in found.items()}


def worst_of(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Of two kernels that are called the same, the worse figures."""
    found = {**others, **values}
    for name in values.keys() & others.keys():
        choose = min if name.endswith((*LESS_IS_WORSE, 'occupancy')) else max
        found[name] = choose(values[name], others[name])
    return found


def worse(row: Row, found: Mapping[str, Any]) -> Iterator[str]:
    """One line for each figure that is worse than a row has it, by more than a slack.

    Example:
        >>> row = Row({'kernel': 'gat forward'}, values={'sm_90 registers': 64, 'sm_90 warps': 32})
        >>> list(worse(row, {'sm_90 registers': 65, 'sm_90 warps': 32}))
        []
        >>> list(worse(row, {'sm_90 registers': 72, 'sm_90 warps': 28}))
        ['gat forward: sm_90 registers are 72 (64 recorded)', 'gat forward: sm_90 warps are 28 (32 recorded)']
    """
    for name, now in found.items():
        before, what = row.values.get(name), name.partition(' ')[2]
        if before is None:
            continue
        if (what in MORE_IS_WORSE and now > before * (1 + SLACK)) or (
            what in LESS_IS_WORSE and now < before * (1 - SLACK)
        ):
            yield f'{row.key}: {name} are {now} ({before} recorded)'
