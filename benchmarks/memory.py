"""Bytes of one training step, counted exactly: kept for backward, and at the peak, of PyG's layer and the fused one.

python benchmarks/memory.py --root data/Tolokers
"""

from __future__ import annotations

import argparse
import time

import torch
import torch_geometric
import torch_geometric.nn as pyg
from convs import IN_CHANNELS, layers, tolokers

import pygfuse
import pygfuse.conv
from pygfuse.memory import peak_bytes, saved_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', default='data/Tolokers', help='where PyG keeps Tolokers, or downloads it to')
    parser.add_argument('--convs', nargs='*', default=['GATConv'], help='which layers')
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--channels', type=int, default=16)
    options = parser.parse_args()
    edge_index, num_nodes = tolokers(options.root)
    print(
        f'{num_nodes} nodes, {edge_index.shape[1]} edges; torch {torch.__version__}, torch_geometric '
        f'{torch_geometric.__version__}, pygfuse {pygfuse.__version__}; {time.strftime("%Y-%m-%d")}\n\n'
        '| layer | | saved, MB | peak, MB |\n| --- | --- | --- | --- |'
    )
    for name in options.convs:
        arguments, settings, extra = layers(options.heads, options.channels)[name]
        for side, classes in (('PyG', pyg), ('pygfuse', pygfuse.conv)):
            layer = getattr(classes, name.split()[0])(*arguments, **settings)
            x = torch.randn(num_nodes, IN_CHANNELS, requires_grad=True)
            inputs = {key: torch.randn(edge_index.shape[1], width) for key, width in extra.items()}
            positional = (x, x.detach()) if name == 'FAConv' else (x,)

            def forward(layer=layer, positional=positional, inputs=inputs):
                return layer(*positional, edge_index, **inputs).sum()

            def step(layer=layer, x=x, forward=forward):
                x.grad = None
                layer.zero_grad()
                forward().backward()

            saved = saved_bytes(forward, exclude=[*layer.parameters(), x, edge_index, *inputs.values()])
            peak = peak_bytes(step, warmup=1)
            print(f'| {name} | {side} | {saved / 1e6:.1f} | {peak / 1e6:.1f} |', flush=True)


if __name__ == '__main__':
    main()
