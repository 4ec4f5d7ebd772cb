"""The layers that are measured, of PyG and fused with the same parameters, and their training steps."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse.conv
from pygfuse.graph.graph import Graph
from suite.case import Options

IN_CHANNELS = 64


@dataclasses.dataclass(frozen=True)
class Layer:
    """How to make a layer: the class's name, arguments, options, and the widths of further inputs of edges."""

    kind: str
    arguments: tuple = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    edge_widths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def plain(self) -> torch.nn.Module:
        """PyG's."""
        return getattr(pyg, self.kind)(*self.arguments, **self.options)

    def pair(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """PyG's and the fused one, with the same parameters."""
        plain = self.plain()
        fused = getattr(pygfuse.conv, self.kind)(*self.arguments, **self.options)
        fused.load_state_dict(plain.state_dict())
        return plain, fused


def layers(heads: int, channels: int) -> dict[str, Layer]:
    """All of them, of `IN_CHANNELS` features."""
    width, linear = heads * channels, torch.nn.Linear
    attention = (IN_CHANNELS, channels), {'heads': heads}
    widths = (IN_CHANNELS, width)
    return {
        'GATConv': Layer('GATConv', *attention),
        'GATv2Conv': Layer('GATv2Conv', *attention),
        'TransformerConv': Layer('TransformerConv', *attention),
        'GCNConv': Layer('GCNConv', widths),
        'SAGEConv': Layer('SAGEConv', widths),
        'SAGEConv max': Layer('SAGEConv', widths, {'aggr': 'max'}),
        'GraphConv': Layer('GraphConv', widths),
        'GINConv': Layer('GINConv', (linear(IN_CHANNELS, width),)),
        'GINConv identity': Layer('GINConv', (torch.nn.Identity(),)),
        'GINEConv': Layer('GINEConv', (linear(IN_CHANNELS, width),), {'edge_dim': 8}, {'edge_attr': 8}),
        'AGNNConv': Layer('AGNNConv'),
        'FAConv': Layer('FAConv', (IN_CHANNELS,)),
        'EdgeConv': Layer('EdgeConv', (linear(2 * IN_CHANNELS, width),)),
        'GMMConv': Layer('GMMConv', (IN_CHANNELS, width, 3, 3), {}, {'edge_attr': 3}),
        'ResGatedGraphConv': Layer('ResGatedGraphConv', widths),
        'CGConv': Layer('CGConv', (IN_CHANNELS,)),
    }


class Training:
    """A layer's inputs on a graph, and its training step: forward and backward, gradients of inputs and parameters."""

    def __init__(self, layer: Layer, edge_index: Tensor, num_nodes: int) -> None:
        self.edge_index = edge_index
        self.x = torch.randn(num_nodes, IN_CHANNELS, requires_grad=True)
        self.positional = (self.x, self.x.detach()) if layer.kind == 'FAConv' else (self.x,)
        self.inputs = {name: torch.randn(edge_index.shape[1], width) for name, width in layer.edge_widths.items()}

    def forward(self, module: torch.nn.Module) -> Tensor:
        """The layer's output."""
        return module(*self.positional, self.edge_index, **self.inputs)

    def step(self, module: torch.nn.Module, grad: Tensor) -> Callable[[], None]:
        """A function that runs a training step."""

        def run() -> None:
            self.x.grad = None
            module.zero_grad()
            self.forward(module).backward(grad)

        return run


def product(edge_index: Tensor, num_nodes: int, width: int) -> Callable[[], Tensor]:
    """The floor: a function that multiplies the graph's CSR matrix by features of a width."""
    csr = Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes).csr
    matrix = torch.sparse_csr_tensor(csr.indptr, csr.index, torch.rand(csr.num_edges), (num_nodes, num_nodes))
    dense = torch.randn(num_nodes, width)
    return lambda: matrix @ dense


def check_fused(module: torch.nn.Module) -> None:
    """Fails if a layer ran PyG's own path."""
    assert module.note.reason is None, module.note.reason


def add_layer_options(parser: argparse.ArgumentParser, default: list[str] | None = None) -> None:
    """The options that `chosen_layers` reads."""
    shown = 'all' if default is None else ' '.join(default)
    parser.add_argument('--convs', nargs='*', default=default, help=f'which layers (default: {shown})')
    parser.add_argument('--heads', type=int, default=4)
    parser.add_argument('--channels', type=int, default=16)


def chosen_layers(options: Options) -> dict[str, Layer]:
    """The layers that the options name.

    Raises:
        ValueError: If there is none of a name.
    """
    known = layers(options.heads, options.channels)
    unknown = set(options.convs or ()) - set(known)
    if unknown:
        raise ValueError(f"Expected '--convs' to name some of {', '.join(known)} (got {', '.join(sorted(unknown))})")
    return {name: known[name] for name in (options.convs or known)}
