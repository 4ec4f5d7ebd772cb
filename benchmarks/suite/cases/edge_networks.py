"""Layers whose edges carry state beside PyG's: a block of a MeshGraphNet, and the same as a MetaLayer.

A training step of one block, forward and backward, with gradients of nodes, edges and parameters, for gradients that
come from the blocks behind. ``PyG, checkpoints`` recomputes the block in backward (``torch.utils.checkpoint``). The
floor, ``products``, are the matrix products alone that PyG's block takes, forward and backward, into memory that is
there. Saved is what autograd keeps beside the inputs; the peak is that of a step, above where it started. All sides in
turn, in one process; medians in ms with the quartiles in brackets.

    python benchmarks/run.py edge_networks --compile
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ReLU, Sequential
from torch.utils.checkpoint import checkpoint
from torch_geometric.utils import scatter

import pygfuse
from pygfuse.bench.case import Measurement, Options, benchmark
from pygfuse.bench.timing import Step
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from pygfuse.memory import peak_bytes, saved_bytes


def network(features: int, hidden: int) -> Sequential:
    return Sequential(Linear(features, hidden), ReLU(), Linear(hidden, hidden), LayerNorm(hidden))


class Block(pyg.MessagePassing):
    """A block of a MeshGraphNet as people write it."""

    def __init__(self, hidden: int) -> None:
        super().__init__(aggr='sum')
        self.edge_mlp, self.node_mlp = network(3 * hidden, hidden), network(2 * hidden, hidden)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        out, edge_attr = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        return x + self.node_mlp(torch.cat([x, out], dim=-1)), edge_attr

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return edge_attr + self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=-1))

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int | None = None) -> tuple[Tensor, Tensor]:
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce='sum'), inputs


class EdgeModel(Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mlp = network(3 * hidden, hidden)

    def forward(self, src: Tensor, dst: Tensor, edge_attr: Tensor, u: None, batch: None) -> Tensor:
        return edge_attr + self.mlp(torch.cat([src, dst, edge_attr], dim=-1))


class NodeModel(Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mlp = network(2 * hidden, hidden)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: None, batch: None) -> Tensor:
        out = scatter(edge_attr, edge_index[1], dim=0, dim_size=x.size(0), reduce='sum')
        return x + self.mlp(torch.cat([x, out], dim=-1))


LAYERS: dict[str, Callable[[int], Module]] = {
    'MeshGraphNet block': Block,
    'MetaLayer': lambda hidden: pyg.MetaLayer(EdgeModel(hidden), NodeModel(hidden)),
}


def products(hidden: int, num_nodes: int, num_edges: int) -> Callable[[], None]:
    """The matrix products of both networks, forward and backward, one after another."""
    shapes = [(num_edges, 3 * hidden), (num_edges, hidden), (num_nodes, 2 * hidden), (num_nodes, hidden)]
    inputs = [torch.randn(shape) for shape in shapes]
    outputs = [torch.randn(rows, hidden) for rows, _ in shapes]
    weights = [torch.randn(hidden, width) for _, width in shapes]
    gradients = [torch.empty_like(weight) for weight in weights]

    def run() -> None:
        for values, weight, out, gradient in zip(inputs, weights, outputs, gradients, strict=True):
            torch.mm(values, weight.t(), out=out)
            torch.mm(out.t(), values, out=gradient)
            torch.mm(out, weight, out=values)
            # so that the numbers stay where they are
            values.fill_(0.5)

    return run


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=10)
    parser.add_argument('--layers', nargs='*', default=list(LAYERS), choices=LAYERS, help='which')
    parser.add_argument('--nodes', type=int, default=20_000)
    parser.add_argument('--edges', type=int, default=120_000)
    parser.add_argument('--hidden', type=int, default=128)
    parser.add_argument('--compile', action='store_true', help='also run torch.compile')


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for layer in options.layers:
        yield {'layer': layer}


@benchmark(
    'edge_networks',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'nodes': options.nodes, 'edges': options.edges, 'hidden': options.hidden},
    ratios=(
        *(('PyG', 'pygfuse'), ('PyG, checkpoints', 'pygfuse'), ('PyG compiled', 'pygfuse'), ('pygfuse', 'products')),
    ),
    quick={'nodes': 60, 'edges': 300, 'hidden': 16},
)
def edge_networks(options: Options, layer: str) -> Measurement:
    """One layer."""
    nodes, edges, hidden = options.nodes, options.edges, options.hidden
    x, edge_attr = (torch.randn(rows, hidden, requires_grad=True) for rows in (nodes, edges))
    edge_index = torch.randint(nodes, (2, edges))
    grads = torch.randn(nodes, hidden), torch.randn(edges, hidden)
    plain = LAYERS[layer](hidden)
    fused = pygfuse.fuse(copy.deepcopy(plain))
    sides: dict[str, Callable[..., Any]] = {
        'PyG': plain,
        'PyG, checkpoints': lambda *given: checkpoint(plain, *given, use_reentrant=False),
        'pygfuse': fused,
    }
    if options.compile:
        sides['PyG compiled'] = torch.compile(plain)

    def step(side: Callable[..., Any]) -> Callable[[], None]:
        def run() -> None:
            x.grad = edge_attr.grad = None
            plain.zero_grad()
            fused.zero_grad()
            torch.autograd.backward(side(x, edge_index, edge_attr)[:2], grads)

        return run

    yield [
        *(Step(name, step(side), warmup=2) for name, side in sides.items()),
        Step('products', products(hidden, nodes, edges)),
    ]
    # a first look is at so few edges that PyG's operators run
    assert fused.note.reason is None or SO_FEW_EDGES in fused.note.reason, fused.note.reason
    given = [x, edge_index, edge_attr, *plain.parameters(), *fused.parameters()]
    found = {}
    for name in ('PyG', 'PyG, checkpoints', 'pygfuse'):
        side = sides[name]
        found[f'{name} saved MB'] = saved_bytes(lambda side=side: side(x, edge_index, edge_attr), exclude=given) / 1e6
        found[f'{name} peak MB'] = peak_bytes(step(side), warmup=1) / 1e6
    return found
