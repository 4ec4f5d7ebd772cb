"""Networks on edges of many widths beside the same layers as they are written: narrow and wide, few and many edges.

A training step of each: forward, and the gradients of inputs and parameters. A layer is a network of both ends and
features of edges, which is summed, maximised, returned beside its sum, or scores for a softmax. Both sides in turn, in
one process; medians in ms with the quartiles in brackets. Along few edges a layer runs its own code: the table says so.

    python benchmarks/run.py network_widths
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, LayerNorm, Linear, Module, Sequential, SiLU
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.timing import Step


def network(inputs: int, channels: int, norm: Callable[[int], Module] | None = None) -> Sequential:
    """Two linear maps, each of which may be normalised, with activations behind."""
    stages: list[Module] = []
    for width in (inputs, channels):
        stages += [Linear(width, channels), *([] if norm is None else [norm(channels)]), SiLU()]
    return Sequential(*stages)


class Reduced(MessagePassing):
    """The network's values, reduced."""

    def __init__(self, channels: int, aggr: str = 'sum', norm: Callable[[int], Module] | None = None) -> None:
        super().__init__(aggr=aggr)
        self.network = network(3 * channels, channels, norm)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.network(torch.cat([x_i, x_j, edge_attr], dim=-1))


class Gated(Reduced):
    """The values of one network, each times that of another."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.gate = network(3 * channels, channels)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        ends = torch.cat([x_i, x_j, edge_attr], dim=-1)
        return torch.sigmoid(self.gate(ends)) * self.network(ends)


class Scored(Reduced):
    """Attention whose scores, one for each channel, are a network's."""

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor, index: Tensor, size_i: int) -> Tensor:
        scores = self.network(torch.cat([x_i, x_j, edge_attr], dim=-1))
        return softmax(scores, index, num_nodes=size_i) * x_j


class States(Module):
    """New states of edges by the network, and their sums."""

    def __init__(self, channels: int, norm: Callable[[int], Module] | None = None) -> None:
        super().__init__()
        self.network, self.of_nodes = network(3 * channels, channels, norm), Linear(2 * channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        row, col = edge_index
        states = self.network(torch.cat([x[row], x[col], edge_attr], dim=-1))
        sums = torch.zeros_like(x).index_add(0, col, states)
        return self.of_nodes(torch.cat([x, sums], dim=-1)), edge_attr + states


LAYERS: dict[str, Callable[[int], Module]] = {
    'sum': Reduced,
    'sum, layer normalisations': lambda channels: Reduced(channels, norm=LayerNorm),
    'sum, batch normalisations': lambda channels: Reduced(channels, norm=BatchNorm1d),
    'maximum, batch normalisations': lambda channels: Reduced(channels, 'max', BatchNorm1d),
    'gated': Gated,
    'scores': Scored,
    'states': States,
    'states, layer normalisations': lambda channels: States(channels, LayerNorm),
    'states, batch normalisations': lambda channels: States(channels, BatchNorm1d),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=11)
    parser.add_argument('--layers', nargs='*', default=list(LAYERS), choices=LAYERS, help='which')
    parser.add_argument('--channels', type=int, nargs='*', default=[8, 32, 128])
    parser.add_argument('--edges', type=int, nargs='*', default=[3_000, 20_000, 100_000])
    parser.add_argument('--neighbours', type=int, default=8, help='edges of each node')


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for layer in options.layers:
        for channels in options.channels:
            for edges in options.edges:
                yield {'layer': layer, 'channels': channels, 'edges': edges}


@benchmark(
    'network_widths',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'neighbours': options.neighbours},
    ratios=(('own code', 'pygfuse'),),
    quick={'layers': ['sum', 'states, batch normalisations'], 'channels': [8], 'edges': [200], 'neighbours': 4},
)
def network_widths(options: Options, layer: str, channels: int, edges: int) -> Measurement:
    """One layer of one width along so many edges."""
    nodes = edges // options.neighbours
    x, edge_attr = (torch.randn(rows, channels, requires_grad=True) for rows in (nodes, edges))
    edge_index = torch.randint(nodes, (2, edges))
    plain = LAYERS[layer](channels)
    sides = {'own code': plain, 'pygfuse': pygfuse.compile(copy.deepcopy(plain))}

    def step(side: Module) -> Callable[[], None]:
        def run() -> None:
            x.grad = edge_attr.grad = None
            side.zero_grad()
            out = side(x, edge_index, edge_attr)
            sum(one.sum() for one in (out if isinstance(out, tuple) else (out,))).backward()

        return run

    yield [Step(name, step(side), warmup=2) for name, side in sides.items()]
    return {'reason': '' if sides['pygfuse'].note.reason is None else 'yes'}
