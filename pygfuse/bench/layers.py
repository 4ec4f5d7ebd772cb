"""The layers and models that are measured, of PyG and fused with the same parameters, and their training steps."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.few_edges import SO_FEW_EDGES

IN_CHANNELS = 64


@dataclasses.dataclass(frozen=True)
class Layer:
    """How to make a layer: the class's name, arguments, options, the widths of further inputs of edges and of nodes."""

    kind: str
    arguments: tuple = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    edge_widths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    features: int = IN_CHANNELS

    def plain(self) -> torch.nn.Module:
        """PyG's."""
        return getattr(pyg, self.kind)(*self.arguments, **self.options)

    def pair(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """PyG's and the fused one, with the same parameters."""
        plain = self.plain()
        return plain, pygfuse.fuse(copy.deepcopy(plain))


def layers(heads: int, channels: int, features: int = IN_CHANNELS) -> dict[str, Layer]:
    """All of them, from so many features to heads x channels."""
    width, linear = heads * channels, torch.nn.Linear
    attention = (features, channels), {'heads': heads}
    widths = (features, width)
    made = {
        'GATConv': Layer('GATConv', *attention),
        'GATConv dropout': Layer('GATConv', attention[0], {'heads': heads, 'dropout': 0.5}),
        'GATv2Conv': Layer('GATv2Conv', *attention),
        'TransformerConv': Layer('TransformerConv', *attention),
        'GCNConv': Layer('GCNConv', widths),
        'SAGEConv': Layer('SAGEConv', widths),
        'SAGEConv max': Layer('SAGEConv', widths, {'aggr': 'max'}),
        'GraphConv': Layer('GraphConv', widths),
        'GINConv': Layer('GINConv', (linear(features, width),)),
        'GINConv identity': Layer('GINConv', (torch.nn.Identity(),)),
        'GINEConv': Layer('GINEConv', (linear(features, width),), {'edge_dim': 8}, {'edge_attr': 8}),
        'AGNNConv': Layer('AGNNConv'),
        'FAConv': Layer('FAConv', (features,)),
        'EdgeConv': Layer('EdgeConv', (linear(2 * features, width),)),
        'GMMConv': Layer('GMMConv', (features, width, 3, 3), {}, {'edge_attr': 3}),
        'ResGatedGraphConv': Layer('ResGatedGraphConv', widths),
        'CGConv': Layer('CGConv', (features,)),
    }
    return {name: dataclasses.replace(layer, features=features) for name, layer in made.items()}


def models(heads: int, channels: int, features: int = IN_CHANNELS) -> dict[str, Layer]:
    """PyG's models of two layers, as wide as `layers` are."""
    widths = features, heads * channels, 2
    options = {'GCN': {}, 'GraphSAGE': {}, 'GIN': {}, 'GAT': {'heads': heads}}
    return {kind: Layer(kind, widths, given, features=features) for kind, given in options.items()}


class Training:
    """A layer's inputs on a graph, and its training step: forward and backward, gradients of inputs and parameters."""

    def __init__(self, layer: Layer, edge_index: Tensor, num_nodes: int) -> None:
        self.edge_index, self.num_nodes = edge_index, num_nodes
        device = edge_index.device
        self.x = torch.randn(num_nodes, layer.features, device=device, requires_grad=True)
        self.positional = (self.x, self.x.detach()) if layer.kind == 'FAConv' else (self.x,)
        edges = edge_index.shape[1]
        self.inputs = {name: torch.randn(edges, width, device=device) for name, width in layer.edge_widths.items()}

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
    csr, device = csr_of(edge_index, num_nodes), edge_index.device
    values = torch.rand(csr.num_edges, device=device)
    shape = num_nodes, num_nodes
    matrix = torch.sparse_csr_tensor(csr.indptr, csr.index, values, shape, check_invariants=False)
    dense = torch.randn(num_nodes, width, device=device)
    if device.type == 'cpu':
        return lambda: matrix @ dense
    out = torch.empty_like(dense)  # cuSPARSE's buffers are kept with it
    return lambda: torch.addmm(out, matrix, dense, beta=0.0, out=out)


def csr_of(edge_index: Tensor, num_nodes: int) -> Csr:
    """The edges by target."""
    return Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes).csr


def check_fused(module: torch.nn.Module) -> None:
    """Fails if a layer of a model ran PyG's own path, but for so few edges that it is the better one."""
    reasons = [part.note.reason for part in module.modules() if hasattr(part, 'note')]
    assert all(reason is None or SO_FEW_EDGES in reason for reason in reasons), reasons
    assert reasons, f'no fused layer in {module}'
