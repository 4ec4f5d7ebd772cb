"""The EdgeConv layers of DGCNN with neighbours given: training step, peak and saved memory, of PyG and of pygfuse.

Random neighbours within clouds stand for nearest ones: a layer's work does not depend on which they are. Both sides run
in one process, step by step in turn, layer by layer (64, 64, 128, 256 channels), on the same threads; times are medians
in ms with quartiles in brackets, of a step (forward and backward, gradients of inputs and parameters). Bytes are
counted exactly (`pygfuse.memory`); the peak is that of all four layers in a row, or of the last layer alone where
PyG's four do not fit (--peak-of-last).

    python -m pygfuse.bench dgcnn
    python -m pygfuse.bench dgcnn --networks two --k 20
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import BatchNorm1d, LeakyReLU, Linear, ReLU, Sequential

import pygfuse.conv
from pygfuse.bench.case import RATIOS, Measurement, Options, benchmark
from pygfuse.bench.layers import check_fused
from pygfuse.bench.schema import Row
from pygfuse.bench.timing import Spread, Step
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
SIDES = 'PyG', 'pygfuse'


def neighbours(clouds: int, points: int, k: int, seed: int = 0) -> Tensor:
    """An ``edge_index`` from k random points of its cloud to each point."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(clouds * points).repeat_interleave(k)
    sources = torch.randint(points, targets.shape, generator=generator) + targets // points * points
    return torch.stack([sources, targets])


def layers(network: str) -> dict[str, list[torch.nn.Module]]:
    """PyG's four layers and the fused ones, with the same parameters."""
    torch.manual_seed(0)
    plain = [pyg.EdgeConv(NETWORKS[network](i, o), aggr='max') for i, o in WIDTHS]
    fused = [pygfuse.conv.EdgeConv(NETWORKS[network](i, o), aggr='max') for i, o in WIDTHS]
    for mine, theirs in zip(fused, plain, strict=True):
        mine.load_state_dict(theirs.state_dict())
    return dict(zip(SIDES, (plain, fused), strict=True))


def forward(convs: list[torch.nn.Module], x: Tensor, edge_index: Tensor) -> Tensor:
    """Layers one after another."""
    for conv in convs:
        x = conv(x, edge_index)
    return x.sum()


def step(convs: list[torch.nn.Module], x: Tensor, edge_index: Tensor) -> Callable[[], None]:
    """A function that runs layers one after another, forward and backward."""

    def run() -> None:
        x.grad = None
        for conv in convs:
            conv.zero_grad()
        forward(convs, x, edge_index).backward()

    return run


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=7)
    parser.add_argument('--networks', nargs='*', default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument('--clouds', type=int, default=32)
    parser.add_argument('--points', type=int, default=1024)
    parser.add_argument('--k', type=int, nargs='*', default=[20, 40], help='times are taken for the last')
    parser.add_argument('--pyg-repeats', type=int, default=2)
    parser.add_argument('--what', nargs='*', default=['times', 'memory'], choices=['times', 'memory'])
    parser.add_argument('--peak-of-last', action='store_true', help='memory of the last layer alone')
    parser.add_argument('--sides', nargs='*', default=list(SIDES), choices=SIDES, help='of the memory')


def parameters(options: Options) -> list[dict[str, Any]]:
    times = [{'network': name, 'layer': i} for name in options.networks for i in range(len(WIDTHS))]
    memory = [{'network': name, 'k': k} for name in options.networks for k in options.k]
    return times * ('times' in options.what) + memory * ('memory' in options.what)


@benchmark(
    'dgcnn',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'clouds': options.clouds, 'points': options.points, 'k': options.k[-1]},
    quick={'clouds': 2, 'points': 32, 'k': [4]},
)
def dgcnn(options: Options, network: str, layer: int | None = None, k: int | None = None) -> Measurement:
    """The times of one layer, and with the last one those of all; or the bytes of all for a number of neighbours."""
    if layer is None:
        return (yield from memory(options, network, k))
    edge_index = neighbours(options.clouds, options.points, options.k[-1])
    width, channels = WIDTHS[layer]
    convs = {side: both[layer] for side, both in layers(network).items()}
    x = torch.randn(options.clouds * options.points, width, requires_grad=True)
    steps = {side: step([conv], x, edge_index) for side, conv in convs.items()}
    samples = yield [Step('PyG', steps['PyG'], repeats=options.pyg_repeats), Step('pygfuse', steps['pygfuse'])]
    check_fused(convs['pygfuse'])
    rows = [Row.of({'network': NAMES[network], 'layer': f'{width} to {channels}'}, samples, RATIOS)]
    known = options.__dict__.setdefault('medians', {})
    known[network, layer] = {side: rows[0].times[side].median for side in SIDES}
    if layer == len(WIDTHS) - 1:
        total = {side: sum(known[network, i][side] for i in range(len(WIDTHS))) for side in SIDES}
        times = {side: Spread(median) for side, median in total.items()}
        ratio = {'PyG / pygfuse': total['PyG'] / total['pygfuse']}
        rows.append(Row({'network': NAMES[network], 'layer': 'all'}, times, ratio))
    return rows


def memory(options: Options, network: str, k: int) -> Measurement:
    """Bytes of a step for a number of neighbours."""
    yield []
    edge_index = neighbours(options.clouds, options.points, k)
    first = len(WIDTHS) - 1 if options.peak_of_last else 0
    values, ratios = {}, {}
    for side in options.sides:
        convs = layers(network)[side][first:]
        x = torch.randn(options.clouds * options.points, WIDTHS[first][0], requires_grad=True)
        run = step(convs, x, edge_index)
        if side == 'pygfuse':
            run()  # the graph's index arrays are made once
        lives = [*(parameter for conv in convs for parameter in conv.parameters()), x, edge_index]
        saved = saved_bytes(lambda convs=convs, x=x: forward(convs, x, edge_index), exclude=lives)
        values |= {f'{side} saved MB': saved / 1e6, f'{side} peak MB': peak_bytes(run, warmup=1) / 1e6}
    if set(options.sides) == set(SIDES):
        ratios['PyG peak / pygfuse peak'] = values['PyG peak MB'] / values['pygfuse peak MB']
    return [Row({'network': NAMES[network], 'k': k}, {}, ratios, values)]
