"""Results as bars: times of all sides of a case beside one another, and memory where that was counted.

matplotlib is imported only where a plot is asked for.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygfuse.bench.providers.provider import is_there
from pygfuse.bench.schema import Result, Row
from pygfuse.bench.timing import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = ('.png', '.svg')
# ours, PyG's, and what others take in turn
COLOURS = {'pygfuse': '#0b7a75', 'PyG': '#9aa3ad'}
OTHERS = ('#d1793c', '#5b6fb5', '#b0567f', '#8a9a3b', '#7b5aa6', '#3b9ab0')
FLOOR = '#444444'
BAR, GAP = 0.22, 0.35  # inches

Bars = Mapping[str, Mapping[str, Any]]  # by case and side


def path(text: str) -> Path:
    """A file that can be drawn to, of a command line; fails before anything is measured."""
    found = Path(text)
    if found.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"expected a name that ends in {' or '.join(SUFFIXES)} (got '{text}')")
    if not is_there('matplotlib'):
        raise argparse.ArgumentTypeError('needs matplotlib: pip install matplotlib')
    return found


def bars_of(rows: Sequence[Row]) -> dict[str, Bars]:
    """What is drawn, by its title: times, and peaks of memory where there are any.

    A row is a case of several sides, or one side of a case where it names a ``side``.
    """
    times: dict[str, dict[str, Spread]] = {}
    peaks: dict[str, dict[str, float]] = {}
    for row in rows:
        case = ', '.join(label_of(name, value) for name, value in row.parameters.items() if name != 'side')
        side, peak = row.parameters.get('side'), row.get('peak MB')
        for name, spread in row.times.items():
            times.setdefault(case, {})[side or name] = spread
        if side is not None and peak is not None:
            peaks.setdefault(case, {})[side] = peak
    return {title: bars for title, bars in (('ms', times), ('MB at the peak', peaks)) if bars}


def label_of(name: str, value: Any) -> str:
    """A parameter in the name of a case; a number says of what."""
    return f'{value:,} {name}' if isinstance(value, int) else str(value)


def in_short(value: float) -> str:
    """Three digits, or all before the point."""
    return f'{value:,.0f}' if value >= 100 else f'{value:.3g}'


def draw(result: Result, file: Path) -> None:
    """Writes the plot of a result; nothing where it has no times."""
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    panels = bars_of(result.rows)
    if not panels:
        return
    first = next(iter(panels.values()))
    names = list(dict.fromkeys(side for sides in first.values() for side in sides))
    others = iter(OTHERS * len(names))
    colours = {name: COLOURS.get(name) or (FLOOR if 'product' in name else next(others)) for name in names}
    places = places_of(first)
    size = 1.5 + 4.5 * len(panels), max(places.values()) + 2
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout='constrained')
    figure.suptitle(f'{result.benchmark} on {result.machine["processor"]}, threads: {result.machine["threads"]}')
    for (title, bars), part in zip(panels.items(), axes[0], strict=True):
        _panel(part, title, bars, places, colours)
    ticks = {case: statistics.mean(places[case, side] for side in sides) for case, sides in first.items()}
    axes[0][0].set(yticks=list(ticks.values()), yticklabels=list(ticks))
    axes[0][0].invert_yaxis()
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[name]) for name in names]
    side_by_side = max(1, int(11 * size[0] / (max(map(len, names)) + 8)))  # about 11 letters an inch
    figure.legend(handles, names, loc='outside lower center', ncols=side_by_side, frameon=False, fontsize=9)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def places_of(bars: Bars) -> dict[tuple[str, str], float]:
    """How far down each bar lies, in inches."""
    found, height = {}, 0.0
    for case, sides in bars.items():
        for side in sides:
            found[case, side] = height
            height += BAR
        height += GAP
    return found


def _panel(
    axes: Axes, title: str, bars: Bars, places: Mapping[tuple[str, str], float], colours: Mapping[str, str]
) -> None:
    """One quantity, on a logarithmic scale that begins with a power of ten."""
    from matplotlib.ticker import NullFormatter

    medians = []
    for case, sides in bars.items():
        for side, value in sides.items():
            spread, height = value if isinstance(value, Spread) else Spread(value), places[case, side]
            medians.append(spread.median)
            axes.barh(height, spread.median, BAR, color=colours[side])
            if spread.low is not None:
                axes.plot([spread.low, spread.high], [height, height], color='black', linewidth=1)
            end = spread.high or spread.median
            axes.annotate(
                in_short(spread.median), (end, height), (3, 0), textcoords='offset points', va='center', fontsize=8
            )
    least = min((median for median in medians if median > 0), default=1)
    axes.set(title=f'{title} (logarithmic)', xscale='log')
    axes.set_xlim(10 ** math.floor(math.log10(0.8 * least)), 3 * max(*medians, 2 * least))
    axes.margins(y=0.01)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(left=False)
    axes.spines[['top', 'right', 'left']].set_visible(False)
