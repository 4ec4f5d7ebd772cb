"""From how many edges on a fused layer is faster than PyG's, and up to how wide features of edges.

A training step (forward and backward, gradients of inputs and parameters) of one layer, 64 to 4 x 16 channels, on
random graphs of ten edges a node: with the same ``edge_index`` in each step, and with a new one, as from a loader,
whose edges are sorted anew. Then layers with features of edges, whose linear map belongs to the step. Both sides in
turn, in one process; medians in ms with the quartiles in brackets.

    python benchmarks/break_even.py
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator

import torch
import torch_geometric.nn as pyg
from convs import IN_CHANNELS, Timer, layers, power_law, quartiles
from torch import Tensor
from tqdm import tqdm

import pygfuse
import pygfuse.conv

HEADS, CHANNELS = 4, 16
# beyond so many edges PyG's steps take long
FEW_REPEATS_FROM = 50_000
WITH_EDGE_FEATURES: dict[str, Callable[[int], tuple[tuple, dict]]] = {
    'GATv2Conv': lambda size: ((IN_CHANNELS, CHANNELS), {'heads': HEADS, 'edge_dim': size}),
    'TransformerConv': lambda size: ((IN_CHANNELS, CHANNELS), {'heads': HEADS, 'edge_dim': size}),
    'GINEConv': lambda size: ((torch.nn.Linear(IN_CHANNELS, HEADS * CHANNELS),), {'edge_dim': size}),
}


def compare(
    name: str,
    arguments: tuple,
    options: dict,
    edge_index: Tensor,
    nodes: int,
    repeats: int,
    anew: bool,
    **extra: Tensor,
) -> tuple[Timer, Timer]:
    """Times of PyG's steps and of the fused ones."""
    plain = getattr(pyg, name)(*arguments, **options)
    fused = getattr(pygfuse.conv, name)(*arguments, **options)
    fused.load_state_dict(plain.state_dict())
    x = torch.randn(nodes, IN_CHANNELS, requires_grad=True)
    grad = torch.randn_like(plain(x, edge_index, **extra))

    def step(layer: torch.nn.Module, edges: Tensor) -> None:
        x.grad = None
        layer.zero_grad()
        layer(x, edges, **extra).backward(grad)

    theirs, mine = Timer(), Timer()
    for layer in (plain, fused):
        step(layer, edge_index)
    for _ in range(repeats):
        edges = edge_index.clone() if anew else edge_index
        theirs(lambda edges=edges: step(plain, edges))
        mine(lambda edges=edges: step(fused, edges))
    assert fused.note.reason is None, fused.note.reason
    return theirs, mine


def row(*first: object, times: tuple[Timer, Timer]) -> str:
    theirs, mine = times
    columns = (*first, quartiles(theirs.times, 2), quartiles(mine.times, 2), f'{theirs.median / mine.median:.1f}x')
    return f'| {" | ".join(map(str, columns))} |'


def by_edges(names: list[str], counts: list[int], repeats: int) -> Iterator[str]:
    for name in tqdm(names, 'layers'):
        arguments, options, _ = layers(HEADS, CHANNELS)[name]
        for count in counts:
            edge_index, nodes = power_law(max(count // 10, 2), count)
            times = repeats if count < FEW_REPEATS_FROM else max(5, repeats // 10)
            for anew in (False, True):
                found = compare(name, arguments, options, edge_index, nodes, times, anew)
                yield row(name, f'{count:,}', 'new' if anew else 'the same', times=found)


def by_edge_features(sizes: list[int], count: int, repeats: int) -> Iterator[str]:
    edge_index, nodes = power_law(count // 10, count)
    for name in tqdm(WITH_EDGE_FEATURES, 'layers with features of edges'):
        for size in sizes:
            arguments, options = WITH_EDGE_FEATURES[name](size)
            edge_attr = torch.randn(count, size)
            found = compare(name, arguments, options, edge_index, nodes, repeats, False, edge_attr=edge_attr)
            yield row(name, size, times=found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--convs', nargs='*', default=['GCNConv', 'GINConv', 'GATConv'], help='which layers')
    parser.add_argument('--edges', nargs='*', type=int, default=[100, 1_000, 10_000, 100_000])
    parser.add_argument('--edge-features', nargs='*', type=int, default=[8, 32, 64, 256])
    parser.add_argument('--repeats', type=int, default=100)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(
        f'{torch.get_num_threads()} threads of {os.cpu_count()} cores, {platform.machine()}; '
        f'torch {torch.__version__}, pygfuse {pygfuse.__version__}; {time.strftime("%Y-%m-%d")}\n'
    )
    lines = list(by_edges(options.convs, options.edges, options.repeats))
    print('| layer | edges | edge_index | PyG step | pygfuse step | ratio |\n| --- | --- | --- | --- | --- | --- |')
    print('\n'.join(lines))
    count = 100_000
    lines = list(by_edge_features(options.edge_features, count, max(5, options.repeats // 10)))
    print(
        f'\n{count:,} edges:\n\n| layer | edge_dim | PyG step | pygfuse step | ratio |\n| --- | --- | --- | --- | --- |'
    )
    print('\n'.join(lines))


if __name__ == '__main__':
    main()
