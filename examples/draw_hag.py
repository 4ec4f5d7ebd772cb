"""Draws a small graph beside a HAG of it, as in Figure 1 of Jia et al., "Redundancy-Free Computation Graphs ...".

python examples/draw_hag.py --output docs/hag.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import torch

from pygfuse.hag import Hag
from pygfuse.transforms import find_hag

matplotlib.use('Agg')
import matplotlib.pyplot as plt

NEIGHBOURS = {'A': 'BCD', 'B': 'ACD', 'C': 'ABE', 'D': 'ABE', 'E': 'CD'}
COLORS = {'node': '#e8edf2', 'aggregation': '#0b7a75', 'line': '#9aa3ad'}

Point = tuple[float, float]


def edges() -> torch.Tensor:
    names = list(NEIGHBOURS)
    pairs = [(names.index(source), names.index(target)) for target in names for source in NEIGHBOURS[target]]
    return torch.tensor(pairs).t().contiguous()


def draw(axes: plt.Axes, title: str, lines: list[tuple[Point, Point]], shared: list[Point], height: int) -> None:
    """Sources below, targets above, aggregation nodes between them."""
    for (x, y), (to_x, to_y) in lines:
        axes.annotate('', (to_x, to_y), (x, y), arrowprops={'arrowstyle': '-|>', 'color': COLORS['line'], 'shrinkA': 11,
                                                           'shrinkB': 11, 'linewidth': 1.2})  # fmt: skip
    for y in (0, height):
        for x, name in enumerate(NEIGHBOURS):
            axes.scatter([x], [y], s=420, color=COLORS['node'], edgecolor='#4a5560', zorder=2)
            axes.text(x, y, name, ha='center', va='center', zorder=3)
    for x, y in shared:
        axes.scatter([x], [y], s=300, color=COLORS['aggregation'], marker='s', zorder=2)
        axes.text(x, y, '+', ha='center', va='center', color='white', fontsize=14, zorder=3)
    axes.set(xlim=(-0.5, len(NEIGHBOURS) - 0.5), ylim=(-0.4, height + 0.4), xticks=[], yticks=[], title=title)
    axes.spines[:].set_visible(False)


def lines_of(hag: Hag, height: int) -> tuple[list[tuple[Point, Point]], list[Point]]:
    """The edges of a HAG, and where its aggregation nodes are: over the middle of their inputs."""
    where: list[Point] = []
    lines = []

    def connect(inputs: list[int], middle: int, to: Point) -> None:
        for k, given in enumerate(inputs):
            lines.append((where[given] if k >= middle else (float(given), 0.0), to))

    def inputs_of(rows, row: int) -> tuple[list[int], int]:
        begin = int(rows.indptr[row])
        return rows.index[begin : int(rows.indptr[row + 1])].tolist(), int(rows.middle[row]) - begin

    for node, level in enumerate(hag.levels.tolist()):
        inputs, middle = inputs_of(hag.aggregations, node)
        below = [where[given][0] if k >= middle else float(given) for k, given in enumerate(inputs)]
        to = sum(below) / len(below), height * level / (hag.depth + 1)
        connect(inputs, middle, to)
        where.append(to)
    for target in range(hag.num_targets):
        connect(*inputs_of(hag.targets, target), (float(target), float(height)))
    return lines, where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--output', type=Path, default=Path('hag.png'), help='default: hag.png')
    arguments = parser.parse_args()
    edge_index = edges()
    hag = find_hag(edge_index, capacity=None)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout='constrained')
    plain = [((float(source), 0.0), (float(target), 2.0)) for source, target in edge_index.t().tolist()]
    aggregations, transfers = hag.num_aggregations, hag.data_transfers
    draw(left, f'the graph: {aggregations.before} aggregations, {transfers.before} transfers', plain, [], 2)
    draw(right, f'a HAG: {aggregations.after} aggregations, {transfers.after} transfers', *lines_of(hag, 2), 2)
    figure.savefig(arguments.output, dpi=150)
    print(hag)


if __name__ == '__main__':
    main()
