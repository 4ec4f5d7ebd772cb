"""How a training step grows with the edges, and what one node of very many edges costs.

Power-law graphs of ten edges a node; beside each step one CSR product of the same width on the same graph, whose time
per edge grows as the features leave the caches. Then 2 M edges among 100,000 nodes: uniform, half of them into one
node, half of them out of one. Medians in ms with the quartiles in brackets.

    python benchmarks/scaling.py
"""

from __future__ import annotations

import argparse
import os
import platform
import time

import torch
from convs import Timer, power_law, quartiles
from torch import Tensor
from tqdm import tqdm

import pygfuse
from pygfuse.conv import GATConv
from pygfuse.graph.graph import Graph

HEADS, CHANNELS = 4, 16


def measure(edge_index: Tensor, num_nodes: int, repeats: int) -> tuple[Timer, Timer]:
    """Times of a step of GAT without self-loops, and of a product."""
    torch.manual_seed(0)
    conv = GATConv(64, CHANNELS, heads=HEADS, add_self_loops=False)
    x = torch.randn(num_nodes, 64, requires_grad=True)
    csr = Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes).csr
    matrix = torch.sparse_csr_tensor(csr.indptr, csr.index, torch.rand(csr.num_edges), (num_nodes, num_nodes))
    dense, grad = torch.randn(num_nodes, HEADS * CHANNELS), torch.randn(num_nodes, HEADS * CHANNELS)

    def step() -> None:
        x.grad = None
        conv.zero_grad()
        conv(x, edge_index).backward(grad)

    mine, product = Timer(), Timer()
    step()
    for _ in range(repeats):
        mine(step)
        product(lambda: matrix @ dense)
    return mine, product


def with_hub(hub_row: int | None, nodes: int = 100_000, edges: int = 2_000_000) -> Tensor:
    """Uniform edges, half of them moved to node 5 in one row of the ``edge_index``."""
    edge_index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
    if hub_row is not None:
        edge_index[hub_row, ::2] = 5
    return edge_index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--edges', nargs='*', type=int, default=[10**5, 10**6, 10**7])
    parser.add_argument('--repeats', type=int, default=7)
    options = parser.parse_args()
    print(
        f'GATConv, {HEADS} heads x {CHANNELS}; {torch.get_num_threads()} threads of {os.cpu_count()} cores, '
        f'{platform.machine()}; torch {torch.__version__}, pygfuse {pygfuse.__version__}; {time.strftime("%Y-%m-%d")}\n'
    )
    graphs = {f'power law, {count:,} edges': power_law(count // 10, count) for count in options.edges}
    for name, row in (('uniform', None), ('half into one node', 1), ('half out of one node', 0)):
        graphs[f'2,000,000 edges, {name}'] = with_hub(row), 100_000
    lines = []
    for name, (edge_index, nodes) in tqdm(graphs.items(), 'graphs'):
        mine, product = measure(edge_index, nodes, options.repeats)
        per_edge = mine.median / edge_index.shape[1] * 1e9
        columns = (name, quartiles(mine.times), f'{per_edge:.0f}', quartiles(product.times))
        lines.append(f'| {" | ".join(columns)} | {mine.median / product.median:.1f} |')
    print('| graph | step | ns an edge | one product | step / product |\n| --- | --- | --- | --- | --- |')
    print('\n'.join(lines))


if __name__ == '__main__':
    main()
