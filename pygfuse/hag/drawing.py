"""A picture of a small HAG: sources below, targets above, aggregation nodes between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from pygfuse.hag.rows import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Point = tuple[float, float]

# more is no picture
EDGES_LIMIT = 500
_HEIGHT = 2.0
_NODE, _BORDER, _AGGREGATION, _LINE = '#e8edf2', '#4a5560', '#0b7a75', '#9aa3ad'


def draw(
    num_sources: int, levels: Tensor, aggregations: Rows, targets: Rows, axes: Axes | None, names: Sequence[str] | None
) -> Axes:
    """Draws a HAG, given by what it consists of; `pygfuse.hag.hag.Hag.draw` says how."""
    axes = _new_axes() if axes is None else axes
    num_edges = targets.num_inputs + aggregations.num_inputs
    if num_edges > EDGES_LIMIT:
        raise ValueError(f'Expected a HAG of at most {EDGES_LIMIT} edges to draw (got {num_edges})')
    most = max(num_sources, targets.num_rows)
    names = [str(node) for node in range(most)] if names is None else names
    if len(names) < most:
        raise ValueError(f"Expected 'names' to have one for each of {most} nodes (got {len(names)})")
    lines, squares = _lines(levels.tolist(), aggregations, targets)
    for begin, end in lines:
        style = {'arrowstyle': '-|>', 'color': _LINE, 'shrinkA': 11, 'shrinkB': 11, 'linewidth': 1.2}
        axes.annotate('', end, begin, arrowprops=style)
    for height, count in ((0.0, num_sources), (_HEIGHT, targets.num_rows)):
        for x, name in enumerate(names[:count]):
            axes.scatter([x], [height], s=420, color=_NODE, edgecolor=_BORDER, zorder=2)
            axes.text(x, height, name, ha='center', va='center', zorder=3)
    for x, y in squares:
        axes.scatter([x], [y], s=300, color=_AGGREGATION, marker='s', zorder=2)
        axes.text(x, y, '+', ha='center', va='center', color='white', fontsize=14, zorder=3)
    axes.set(xlim=(-0.5, most - 0.5), ylim=(-0.4, _HEIGHT + 0.4), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _new_axes() -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('a picture of a HAG needs matplotlib: pip install matplotlib') from error
    return plt.subplots()[1]


def _lines(levels: list[int], aggregations: Rows, targets: Rows) -> tuple[list[tuple[_Point, _Point]], list[_Point]]:
    """The edges as lines, and where the aggregation nodes are: over the middle of their inputs, in their level."""
    places: list[_Point] = []
    lines = []
    depth = levels[-1] if levels else 0
    for node, level in enumerate(levels):
        inputs = _inputs(aggregations, node, places)
        x = sum(place[0] for place in inputs) / len(inputs)
        # those of a level that would hide each other stand side by side
        height = _HEIGHT * level / (depth + 1)
        while any(abs(x - other[0]) < 0.3 and other[1] == height for other in places):
            x += 0.3
        places.append((x, height))
        lines += [(place, places[-1]) for place in inputs]
    for target in range(targets.num_rows):
        lines += [(place, (float(target), _HEIGHT)) for place in _inputs(targets, target, places)]
    return lines, places


def _inputs(rows: Rows, row: int, places: Sequence[_Point]) -> list[_Point]:
    """Where the inputs of a row are, given where the aggregation nodes are."""
    begin, middle, end = int(rows.indptr[row]), int(rows.middle[row]), int(rows.indptr[row + 1])
    sources = [(float(source), 0.0) for source in rows.index[begin:middle].tolist()]
    return sources + [places[node] for node in rows.index[middle:end].tolist()]
