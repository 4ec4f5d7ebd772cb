"""Draws a small graph beside a HAG of it, as in Figure 1 of Jia et al., "Redundancy-Free Computation Graphs ...".

python examples/draw_hag.py --output docs/hag.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import torch

from pygfuse.transforms import find_hag

matplotlib.use('Agg')
import matplotlib.pyplot as plt

NEIGHBOURS = {'A': 'BCD', 'B': 'ACD', 'C': 'ABE', 'D': 'ABE', 'E': 'CD'}


def edges() -> torch.Tensor:
    names = list(NEIGHBOURS)
    pairs = [(names.index(source), names.index(target)) for target in names for source in NEIGHBOURS[target]]
    return torch.tensor(pairs).t().contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--output', type=Path, default=Path('hag.png'), help='default: hag.png')
    arguments = parser.parse_args()
    figure, both = plt.subplots(1, 2, figsize=(9, 3.4), layout='constrained')
    for axes, title, capacity in zip(both, ('the graph', 'a HAG'), (0, None), strict=True):
        hag = find_hag(edges(), capacity=capacity)
        hag.draw(axes, names=list(NEIGHBOURS))
        axes.set_title(f'{title}: {hag.num_aggregations.after} aggregations, {hag.data_transfers.after} transfers')
    figure.savefig(arguments.output, dpi=150)
    print(f'{hag}\nPicture: {arguments.output}')


if __name__ == '__main__':
    main()
