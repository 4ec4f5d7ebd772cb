"""Every convolution with the inputs it takes, for the tests that hold of all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric.nn
from torch.nn import BatchNorm1d, LeakyReLU, Linear, Module, PReLU, ReLU, Sequential, SiLU, Softplus

import pygfuse.conv
from tests.support.parity import Example, Parity

FEATURES, HEADS, CHANNELS, EDGE_DIM = 8, 2, 4, 3


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """A class of both packages as it is tested.

    Attributes:
        name: Of the class in both packages.
        options: Keyword arguments of the constructor.
        edge: The name of the argument that takes something of each edge, if any.
        width: How many features an edge has; None for one number.
        square: Whether sources and targets are the same nodes.
        aggregations: Values of ``aggr`` that run fused.
        in_channels: The option that holds the width of the features, if any, and whether it may be lazy.
    """

    name: str
    options: Mapping[str, Any]
    edge: str | None = None
    width: int | None = None
    square: bool = False
    aggregations: tuple[str, ...] = ('add', 'mean', 'max', 'min')
    in_channels: str | None = 'in_channels'
    lazy: bool = True

    def __str__(self) -> str:
        return self.name if self.edge is None else f'{self.name} with {self.edge}'

    @property
    def parity(self) -> Parity:
        return Parity(getattr(torch_geometric.nn, self.name), getattr(pygfuse.conv, self.name))

    @property
    def takes_size(self) -> bool:
        return self.name in ('SAGEConv', 'GraphConv', 'GINConv', 'GINEConv', 'GMMConv')

    def inputs(
        self,
        example: Example,
        num_edges: int | None = None,
        features: int = FEATURES,
        dtype: torch.dtype = torch.float32,
    ) -> dict[str, Any]:
        """The arguments of ``forward`` but for ``edge_index``."""
        if num_edges is not None:
            example = dataclasses.replace(example, edge_index=example.edge_index[:, :num_edges])
        found: dict[str, Any] = {'x': example.x(features)}
        if self.name == 'FAConv':
            found['x_0'] = example.x(features, seed=2)
        if self.edge is not None:
            found[self.edge] = example.edge_attr(self.width)
        if self.edge == 'edge_weight':
            found[self.edge] = found[self.edge].abs() + 0.25  # sums of which have real roots
        return found if dtype is torch.float32 else {name: value.to(dtype) for name, value in found.items()}

    def check(self, example: Example, **arguments: Any) -> None:
        """Parity with these options, or with other ones given as ``options``."""
        options = {**self.options, **arguments.pop('options', {})}
        self.parity.check(options, **{**self.inputs(example), 'edge_index': example.edge_index, **arguments})

    def fused(self, **options: Any) -> Any:
        """A fused layer with random parameters."""
        return self.parity.make({**self.options, **options})[1]

    def pair(self, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any]:
        """PyG's layer and the fused one with the same parameters."""
        pyg, fused = self.parity.make({**self.options, **options})
        return pyg.to(dtype), fused.to(dtype)


def mlp(features: int = FEATURES, out: int = 5) -> Module:
    return Sequential(Linear(features, 6), ReLU(), Linear(6, out))


WIDTHS = {'in_channels': FEATURES, 'out_channels': CHANNELS}
ATTENTION = {**WIDTHS, 'heads': HEADS}
SUMS = ('add', 'mean')
GATV2 = Layer('GATv2Conv', ATTENTION, aggregations=SUMS)
TRANSFORMER = Layer('TransformerConv', ATTENTION, aggregations=SUMS)
GCN = Layer('GCNConv', {'in_channels': FEATURES, 'out_channels': FEATURES}, square=True)
SAGE = Layer('SAGEConv', WIDTHS)
GRAPH = Layer('GraphConv', WIDTHS)
GIN = Layer('GINConv', {'nn': mlp(), 'train_eps': True}, in_channels=None)
GINE = Layer('GINEConv', {'nn': mlp(), 'train_eps': True}, 'edge_attr', FEATURES, in_channels=None)
EDGE_CONV = Layer('EdgeConv', {'nn': Linear(2 * FEATURES, CHANNELS)}, in_channels=None)
GMM = Layer('GMMConv', {**WIDTHS, 'dim': 2, 'kernel_size': 3}, 'edge_attr', 2, aggregations=SUMS)
SEPARATE_GMM = Layer(
    'GMMConv', {**WIDTHS, 'dim': 2, 'kernel_size': 2, 'separate_gaussians': True}, 'edge_attr', 2, aggregations=SUMS
)
AGNN = Layer('AGNNConv', {}, square=True, aggregations=SUMS, in_channels=None)
FA = Layer('FAConv', {'channels': FEATURES}, square=True, aggregations=SUMS, in_channels='channels', lazy=False)
GATED = Layer('ResGatedGraphConv', WIDTHS)
CG = Layer('CGConv', {'channels': FEATURES}, in_channels='channels', lazy=False)


def _with_edges(layer: Layer, edge: str = 'edge_attr', width: int | None = EDGE_DIM, **options: Any) -> Layer:
    return dataclasses.replace(layer, options={**layer.options, **options}, edge=edge, width=width)


GATV2_EDGES = _with_edges(GATV2, edge_dim=EDGE_DIM)
TRANSFORMER_EDGES = _with_edges(TRANSFORMER, edge_dim=EDGE_DIM)
GCN_WEIGHTS = _with_edges(GCN, 'edge_weight', None)
GRAPH_WEIGHTS = _with_edges(GRAPH, 'edge_weight', None)
GINE_EDGES = _with_edges(GINE, edge_dim=EDGE_DIM)
FA_WEIGHTS = _with_edges(FA, 'edge_weight', None, normalize=False)
# smooth, as below
NN = Layer(
    'NNConv', {**WIDTHS, 'nn': Sequential(Linear(EDGE_DIM, 5), SiLU(), Linear(5, FEATURES * CHANNELS))},
    'edge_attr', EDGE_DIM, aggregations=SUMS, lazy=False,
)  # fmt: skip
GATED_EDGES = dataclasses.replace(_with_edges(GATED, edge_dim=EDGE_DIM), lazy=False)  # PyG's has no lazy edges
CG_EDGES = _with_edges(CG, dim=EDGE_DIM)

GAT = Layer('GATConv', ATTENTION, aggregations=SUMS)
GAT_EDGES = _with_edges(GAT, edge_dim=EDGE_DIM)


def _edge_network(*stages: Module, aggr: str = 'max') -> Layer:
    return Layer('EdgeConv', {'nn': Sequential(*stages), 'aggr': aggr}, in_channels=None)


# smooth, so that rounding does not move a derivative from one side of a kink to the other
EDGE_NETWORKS = {
    'EdgeConv, smooth': _edge_network(Linear(2 * FEATURES, 6), SiLU(), aggr='add'),
    'EdgeConv, two maps, sum': _edge_network(Linear(2 * FEATURES, 6), Softplus(), Linear(6, 5), SiLU(), aggr='add'),
    'EdgeConv, two maps, max': _edge_network(Linear(2 * FEATURES, 6), SiLU(), Linear(6, 5)),
    'EdgeConv, rectifiers, max': _edge_network(Linear(2 * FEATURES, 6), ReLU(), Linear(6, 5), LeakyReLU(0.1)),
    'EdgeConv, normalised': _edge_network(Linear(2 * FEATURES, 6), BatchNorm1d(6), LeakyReLU(0.2)),
    'EdgeConv, PReLU': _edge_network(Linear(2 * FEATURES, 6), PReLU(6), aggr='add'),
}

PLAIN = (GATV2, TRANSFORMER, GCN, SAGE, GRAPH, GIN, EDGE_CONV, AGNN, FA, GATED, CG)
EDGES = (
    GATV2_EDGES, TRANSFORMER_EDGES, GCN_WEIGHTS, GRAPH_WEIGHTS, GINE, GINE_EDGES, GMM, SEPARATE_GMM, FA_WEIGHTS,
    GATED_EDGES, CG_EDGES, NN,
)  # fmt: skip
LAYERS = (*PLAIN, *EDGES)
EVERY = {str(layer): layer for layer in (GAT, GAT_EDGES, *LAYERS) if layer is not SEPARATE_GMM} | {
    f'{layer}, {aggr}': dataclasses.replace(layer, options={**layer.options, 'aggr': aggr})
    for layer in (GCN, SAGE, GATED, CG, EDGE_CONV)
    for aggr in ('max', 'mean')
}
EVERY |= {'GMMConv, separate': SEPARATE_GMM, **EDGE_NETWORKS}
DROPOUT = (GATV2, GATV2_EDGES, TRANSFORMER, TRANSFORMER_EDGES, FA, FA_WEIGHTS)


def square(edge_index: Any, num_nodes: int) -> Example:
    """An example whose sources and targets are the same nodes."""
    return Example(torch.as_tensor(edge_index), num_nodes, num_nodes)


def make_usual_layers() -> None:
    """PyG writes a class's `propagate` as its first layer needs it: after one with aggr='lstm', say, it cannot take
    sparse adjacencies in any."""
    for classes in (torch_geometric.nn, pygfuse.conv):
        classes.SAGEConv(1, 1), classes.GraphConv(1, 1), classes.GINConv(torch.nn.Identity()), classes.RGCNConv(1, 1, 1)
