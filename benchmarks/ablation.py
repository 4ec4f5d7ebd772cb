"""What each of the three ideas brings: reorganisation, fusion, recomputation, one switched on after the other.

The table of "Understanding GNN Computational Graph" (MLSys 2022, section 7.3): a training step's time, what it saves
for backward, and its peak memory, for PyG, for the same layer with all switches off, and with one more on in each row.
All run in one process, in turn. Medians with the quartiles in brackets.

    python benchmarks/ablation.py --root data/Tolokers
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

import torch
import torch_geometric.nn as pyg
from convs import IN_CHANNELS, Timer, add_graph_options, chosen_graph, layers, quartiles
from torch import Tensor
from tqdm import tqdm

import pygfuse
import pygfuse.conv
from pygfuse.memory import peak_bytes, saved_bytes

STEPS = {
    'none of the three': {'reorganisation': False, 'fusion': False, 'recomputation': False},
    '+ reorganisation': {'fusion': False, 'recomputation': False},
    '+ fusion': {'recomputation': False},
    '+ recomputation': {},
}


def measure(name: str, spec: tuple, edge_index: Tensor, num_nodes: int, repeats: int) -> list[list[str]]:
    """A row for PyG and for each combination of switches."""
    arguments, options, extra = spec
    torch.manual_seed(0)
    plain, fused = getattr(pyg, name)(*arguments, **options), getattr(pygfuse.conv, name)(*arguments, **options)
    fused.load_state_dict(plain.state_dict())
    x = torch.randn(num_nodes, IN_CHANNELS, requires_grad=True)
    inputs = {key: torch.randn(edge_index.shape[1], width) for key, width in extra.items()}
    grad = torch.randn_like(fused(x, edge_index, **inputs))

    def step_of(layer: torch.nn.Module, switches: dict[str, bool]) -> tuple[Callable, Callable]:
        def forward() -> Tensor:
            with pygfuse.ablation(**switches):
                return layer(x, edge_index, **inputs)

        def step() -> None:
            x.grad = None
            layer.zero_grad()
            forward().backward(grad)

        return forward, step

    calls = {'PyG': step_of(plain, {}), **{label: step_of(fused, off) for label, off in STEPS.items()}}
    timers = {label: Timer() for label in calls}
    for i in range(repeats + 1):
        for label, (_, step) in calls.items():
            if i:
                timers[label](step)
            else:
                step()
    base, rows = timers['PyG'].median, []
    for label, (forward, step) in calls.items():
        saved, peak = saved_bytes(forward, exclude=[x, edge_index, *inputs.values()]), peak_bytes(step)
        ratio = f'{base / timers[label].median:.1f}x'
        rows.append([name, label, quartiles(timers[label].times), ratio, f'{saved / 1e6:.1f}', f'{peak / 1e6:.1f}'])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument('--convs', nargs='*', default=['GATConv', 'GATv2Conv', 'EdgeConv', 'GMMConv'])
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--channels', type=int, default=16)
    parser.add_argument('--repeats', type=int, default=5)
    options = parser.parse_args()
    edge_index, num_nodes = chosen_graph(options)
    print(
        f'{num_nodes} nodes, {edge_index.shape[1]} edges; {options.heads} heads x {options.channels}; '
        f'{torch.get_num_threads()} threads of {os.cpu_count()} cores, {platform.machine()}; '
        f'torch {torch.__version__}, pygfuse {pygfuse.__version__}; {time.strftime("%Y-%m-%d")}\n'
    )
    specs = layers(options.heads, options.channels)
    rows = [
        row
        for name in tqdm(options.convs, 'layers')
        for row in measure(name, specs[name], edge_index, num_nodes, options.repeats)
    ]
    print('| layer | | step, ms | PyG / this | saved, MB | peak, MB |\n| --- | --- | --- | --- | --- | --- |')
    for row in rows:
        print(f'| {" | ".join(row)} |')


if __name__ == '__main__':
    main()
