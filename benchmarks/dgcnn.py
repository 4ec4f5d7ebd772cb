"""The EdgeConv layers of DGCNN with neighbours given: training step, peak and saved memory, of PyG and of pygfuse.

Random neighbours within clouds stand for nearest ones: a layer's work does not depend on which they are. Both sides run
in one process, step by step in turn, layer by layer (64, 64, 128, 256 channels), on the same threads; times are medians
in ms with quartiles in brackets, of a step (forward and backward, gradients of inputs and parameters). Bytes are
counted exactly (`pygfuse.memory`); the peak is that of all four layers in a row, or of the last layer alone where
PyG's four do not fit (--peak-of-last).

    python benchmarks/dgcnn.py
    python benchmarks/dgcnn.py --networks two --k 20
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

import torch
import torch_geometric
import torch_geometric.nn as pyg
from convs import Timer, quartiles
from torch import Tensor
from torch.nn import BatchNorm1d, LeakyReLU, Linear, ReLU, Sequential

import pygfuse
import pygfuse.conv
from pygfuse.memory import peak_bytes, saved_bytes

WIDTHS = ((3, 64), (64, 64), (64, 128), (128, 256))
NETWORKS: dict[str, Callable[[int, int], torch.nn.Module]] = {
    'linear': lambda i, o: Linear(2 * i, o),
    'norm': lambda i, o: Sequential(Linear(2 * i, o), BatchNorm1d(o), LeakyReLU(0.2)),
    'two': lambda i, o: pyg.MLP([2 * i, o, o]),
    'two norms': lambda i, o: Sequential(
        Linear(2 * i, o), BatchNorm1d(o), ReLU(), Linear(o, o), BatchNorm1d(o), ReLU()
    ),
}
NAMES = {
    'linear': 'Linear',
    'norm': 'Linear, BatchNorm, LeakyReLU',
    'two': 'MLP([., F, F]) (Linear, BatchNorm, ReLU, Linear)',
    'two norms': 'twice Linear, BatchNorm, ReLU',
}


def neighbours(clouds: int, points: int, k: int, seed: int = 0) -> Tensor:
    """An ``edge_index`` from k random points of its cloud to each point."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(clouds * points).repeat_interleave(k)
    sources = torch.randint(points, targets.shape, generator=generator) + targets // points * points
    return torch.stack([sources, targets])


def layers(network: str) -> tuple[list[torch.nn.Module], list[torch.nn.Module]]:
    """PyG's four layers and the fused ones, with the same parameters."""
    torch.manual_seed(0)
    plain = [pyg.EdgeConv(NETWORKS[network](i, o), aggr='max') for i, o in WIDTHS]
    fused = [pygfuse.conv.EdgeConv(NETWORKS[network](i, o), aggr='max') for i, o in WIDTHS]
    for mine, theirs in zip(fused, plain, strict=True):
        mine.load_state_dict(theirs.state_dict())
    return plain, fused


def step(convs: list[torch.nn.Module], x: Tensor, edge_index: Tensor) -> Callable[[], None]:
    """A function that runs layers one after another, forward and backward."""

    def run() -> None:
        x.grad = None
        h = x
        for conv in convs:
            conv.zero_grad()
            h = conv(h, edge_index)
        h.sum().backward()

    return run


def times(network: str, edge_index: Tensor, nodes: int, repeats: int, plain_repeats: int) -> None:
    """Prints a row for each layer and one for all."""
    plain, fused = layers(network)
    total = [0.0, 0.0]
    for theirs, mine, (width, channels) in zip(plain, fused, WIDTHS, strict=True):
        x = torch.randn(nodes, width, requires_grad=True)
        timers = Timer(), Timer()
        step([mine], x, edge_index)()
        for i in range(repeats):
            if i < plain_repeats:
                timers[0](step([theirs], x, edge_index))
            timers[1](step([mine], x, edge_index))
        assert mine.note.reason is None, mine.note.reason
        ratio = timers[0].median / timers[1].median
        total = [so_far + timer.median for so_far, timer in zip(total, timers, strict=True)]
        row = [f'{width} to {channels}', *(quartiles(timer.times) for timer in timers), f'{ratio:.1f}x']
        print(f'| {NAMES[network]} | {" | ".join(row)} |', flush=True)
    print(
        f'| {NAMES[network]} | all | {total[0] * 1e3:.0f} | {total[1] * 1e3:.0f} | {total[0] / total[1]:.1f}x |',
        flush=True,
    )


def memory(network: str, ks: list[int], clouds: int, points: int, of_last: bool, sides: tuple[str, ...]) -> None:
    """Prints the bytes of a step of both sides for each number of neighbours."""
    for k in ks:
        edge_index = neighbours(clouds, points, k)
        row = []
        plain, fused = layers(network)
        for convs in [plain] * ('pyg' in sides) + [fused] * ('pygfuse' in sides):
            chosen = convs[-1:] if of_last else convs
            x = torch.randn(clouds * points, WIDTHS[-1][0] if of_last else WIDTHS[0][0], requires_grad=True)
            parameters = [parameter for conv in chosen for parameter in conv.parameters()]

            def forward(chosen=chosen, x=x, edge_index=edge_index) -> Tensor:
                h = x
                for conv in chosen:
                    h = conv(h, edge_index)
                return h.sum()

            if convs is fused:
                step(chosen, x, edge_index)()  # the graph's index arrays are made once
            saved = saved_bytes(forward, exclude=[*parameters, x, edge_index])
            peak = peak_bytes(step(chosen, x, edge_index), warmup=1)
            row += [f'{saved / 1e6:.1f}', f'{peak / 1e6:.1f}']
        if len(row) == 4:
            row.append(f'{float(row[1]) / float(row[3]):.1f}x')
        print(f'| {NAMES[network]} | {k} | {" | ".join(row)} |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--networks', nargs='*', default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument('--clouds', type=int, default=32)
    parser.add_argument('--points', type=int, default=1024)
    parser.add_argument('--k', type=int, nargs='*', default=[20, 40], help='times are taken for the last')
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--pyg-repeats', type=int, default=2)
    parser.add_argument('--what', nargs='*', default=['times', 'memory'], choices=['times', 'memory'])
    parser.add_argument('--peak-of-last', action='store_true', help='memory of the last layer alone')
    parser.add_argument(
        '--sides', nargs='*', default=['pyg', 'pygfuse'], choices=['pyg', 'pygfuse'], help='of the memory'
    )
    options = parser.parse_args()
    nodes = options.clouds * options.points
    print(
        f'{options.clouds} clouds of {options.points} points; {torch.get_num_threads()} threads of {os.cpu_count()} '
        f'cores, {platform.machine()}; torch {torch.__version__}, torch_geometric {torch_geometric.__version__}, '
        f'pygfuse {pygfuse.__version__}; {time.strftime("%Y-%m-%d")}'
    )
    if 'times' in options.what:
        print(f'\n| k = {options.k[-1]} | layer | PyG step | pygfuse step | ratio |\n|{" --- |" * 5}', flush=True)
        for network in options.networks:
            times(
                network,
                neighbours(options.clouds, options.points, options.k[-1]),
                nodes,
                options.repeats,
                options.pyg_repeats,
            )
    if 'memory' in options.what:
        sides = [f'{side} {what}, MB' for side in options.sides for what in ('saved', 'peak')]
        header = ['network', 'k', *sides, *['ratio of peaks'] * (len(options.sides) == 2)]
        print(f'\n| {" | ".join(header)} |\n|{" --- |" * len(header)}', flush=True)
        for network in options.networks:
            memory(network, options.k, options.clouds, options.points, options.peak_of_last, tuple(options.sides))


if __name__ == '__main__':
    main()
