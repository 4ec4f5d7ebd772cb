"""The layers that pygfuse compiles, each of PyG's with options as its users have them, and what it is given."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import Linear, Module, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.nn.models.dimenet import InteractionBlock

import pygfuse
from pygfuse.bench import modules_that_make_edges as of_made_edges
from pygfuse.bench import own_messages as own
from pygfuse.bench import own_modules
from pygfuse.bench.graph_networks import graph_network

CHANNELS, HEADS, EDGE_DIM, RELATIONS = 64, 4, 8, 4
# at most, of layers that hold a matrix for each edge, or maps of several heads
NARROW, HALF = 16, 32
# of a batch over one graph
SAMPLES = 4
GRAPHS = 20
PNA = {'aggregators': ['mean', 'min', 'max', 'std'], 'scalers': ['identity', 'amplification', 'attenuation']}
HEAT = {
    'num_node_types': 2, 'num_edge_types': RELATIONS, 'edge_type_emb_dim': EDGE_DIM, 'edge_dim': EDGE_DIM,
    'edge_attr_emb_dim': EDGE_DIM,
}  # fmt: skip
METADATA = ['node'], [('node', 'to', 'node')]


@dataclasses.dataclass(frozen=True)
class CompiledLayer:
    """A layer.

    Attributes:
        make: Makes PyG's.
        given: From features of nodes and edges, what ``forward`` takes by name.
        channels: The width of the features, if it is not that of the layers that were asked for.
        is_wide: Whether PyG's holds so much for each edge that it is measured on the smaller graph.
    """

    make: Callable[[], Module]
    given: Callable[[Tensor, Tensor], Mapping[str, Any]] = lambda x, edge_index: {'x': x, 'edge_index': edge_index}
    channels: int | None = None
    is_wide: bool = False


def _with(**more: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Mapping[str, Any]]:
    return lambda x, edge_index: {
        'x': x,
        'edge_index': edge_index,
        **{name: make(x, edge_index) for name, make in more.items()},
    }


def _position(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.randn(x.shape[0], 3)


def _normal(x: Tensor, edge_index: Tensor) -> Tensor:
    return F.normalize(torch.randn(x.shape[0], 3), dim=-1)


def _vectors(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.randn(x.shape[0], 3 * x.shape[1])


def _of_edges(width: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, edge_index: torch.randn(edge_index.shape[1], width)


def _others(x: Tensor, edge_index: Tensor) -> Tensor:
    # one more, which tells the sets apart
    return torch.randn(x.shape[0] + 1, x.shape[1])


def _edge_weight(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.rand(edge_index.shape[1])


def _types(number: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, edge_index: torch.arange(edge_index.shape[1]) % number


def _node_types(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.arange(x.shape[0]) % HEAT['num_node_types']


def _features(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.randn_like(x)


def _signed(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    half = edge_index.shape[1] // 2
    order = torch.randperm(2 * half)
    return {'x': x, 'pos_edge_index': edge_index[:, order[:half]], 'neg_edge_index': edge_index[:, order[half:]]}


def _signals(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    # as many numbers as features of nodes have
    return {'signals': x.view(x.shape[0], SAMPLES, -1).transpose(0, 1).contiguous(), 'edge_index': edge_index}


def _matrix(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    size = (x.shape[0], x.shape[0])
    return {'x': x, 'adj': torch.sparse_coo_tensor(edge_index, torch.rand(edge_index.shape[1]), size).coalesce()}


def _order(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.randperm(edge_index.shape[1])


def _states(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.randn(GRAPHS, x.shape[1])


def _batch(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.arange(x.shape[0]) * GRAPHS // x.shape[0]


def _pairs(x: Tensor, edge_index: Tensor) -> Tensor:
    return torch.randint(x.shape[0], edge_index.shape)


def _typed(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    return {'x_dict': {'node': x}, 'edge_index_dict': {METADATA[1][0]: edge_index}}


def _hypergraph(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    return {'x': x, 'hyperedge_index': edge_index}


def _data(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    return {'batch': Data(x, edge_index, torch.randn(edge_index.shape[1], x.shape[1]))}


def _triplets(x: Tensor, edge_index: Tensor) -> Mapping[str, Any]:
    of_edges, of_angles = torch.randn(x.shape[0], 6), torch.randn(edge_index.shape[1], 42)
    return {'x': x, 'rbf': of_edges, 'sbf': of_angles, 'idx_kj': edge_index[0], 'idx_ji': edge_index[1]}


def attention_of(channels: int) -> dict[str, int]:
    """The options of attention whose heads are that wide together."""
    return {'in_channels': channels, 'out_channels': channels // HEADS, 'heads': HEADS}


def _network(width: int, channels: int, out: int | None = None) -> Module:
    return Sequential(Linear(width, channels), ReLU(), Linear(channels, channels if out is None else out))


def _of_width(channels: int) -> dict[str, CompiledLayer]:
    """All layers, of so many channels."""
    narrow, half = min(channels, NARROW), min(channels, HALF)
    widths = {'in_channels': channels, 'out_channels': channels}
    attention = attention_of(channels)
    return {
        'GAT, own message': CompiledLayer(lambda: own.OwnGAT(channels, HEADS)),
        'attention by a network, own message': CompiledLayer(lambda: own.NetworkAttention(channels), is_wide=True),
        'EGNN, own message': CompiledLayer(lambda: own.Equivariant(channels), _with(pos=_position), is_wide=True),
        'SchNet, own message': CompiledLayer(
            lambda: own.ContinuousFilter(channels), _with(pos=_position), is_wide=True
        ),
        'residual network, own message': CompiledLayer(lambda: own.Residual(channels), is_wide=True),
        'GatedGCN, own message': CompiledLayer(
            lambda: own.GatedEdges(channels), _with(edge_attr=_of_edges(channels)), is_wide=True
        ),
        'EGNN with gates, own message': CompiledLayer(
            lambda: own.GatedEquivariant(channels), _with(pos=_position), is_wide=True
        ),
        'equivariant transformer, own message': CompiledLayer(
            lambda: own.EquivariantTransformer(channels, HEADS, EDGE_DIM),
            _with(edge_attr=_of_edges(EDGE_DIM), vector=_vectors, direction=_of_edges(3)),
            is_wide=True,
        ),
        'CompGCN, own message': CompiledLayer(
            lambda: own.Composition(channels, RELATIONS), _with(edge_type=_types(RELATIONS), edge_weight=_edge_weight)
        ),
        'Simple-HGN, own message': CompiledLayer(
            lambda: own.AttentionOfTypes(channels, HEADS, RELATIONS), _with(edge_type=_types(RELATIONS))
        ),
        'MPNN, own message': CompiledLayer(
            lambda: own.MatrixOfEdges(half, EDGE_DIM, channels), _with(edge_attr=_of_edges(EDGE_DIM)), half, True
        ),
        'friends and foes, own module': CompiledLayer(lambda: own_modules.FriendsAndFoes(channels), _signed),
        'scored pairs, own module': CompiledLayer(
            lambda: own_modules.ScoredPairs(channels), _with(edge_label_index=_pairs), is_wide=True
        ),
        'sparse adjacency, own module': CompiledLayer(lambda: own_modules.SparseAdjacency(channels), _matrix),
        'maxima of torch_scatter, own module': CompiledLayer(lambda: own_modules.MaxRelative(channels), is_wide=True),
        'normalised states, own module': CompiledLayer(
            lambda: own_modules.NormalisedStates(channels), _with(edge_attr=_of_edges(channels)), is_wide=True
        ),
        'gated gradients, own module': CompiledLayer(lambda: own_modules.GatedGradients(channels, HEADS), is_wide=True),
        'relational attention, own module': CompiledLayer(
            lambda: own_modules.RelationalAttention(narrow, RELATIONS), _with(edge_type=_types(RELATIONS)), narrow, True
        ),
        'directed states, own module': CompiledLayer(
            lambda: own_modules.DirectedStates(channels),
            _with(edge_attr=_of_edges(channels), back=_order),
            is_wide=True,
        ),
        'states of graphs, own module': CompiledLayer(
            lambda: own_modules.GraphStates(channels),
            _with(edge_attr=_of_edges(channels), state=_states, batch=_batch),
            is_wide=True,
        ),
        'looped gates, own module': CompiledLayer(lambda: own_modules.LoopedGates(channels, HEADS), is_wide=True),
        **{
            f'graph network, {norms} norms, MetaLayer': CompiledLayer(
                functools.partial(graph_network, channels, norms),
                _with(edge_attr=_of_edges(channels), u=_states, batch=_batch),
                is_wide=True,
            )
            for norms in range(4)
        },
        'sensor signals, own module': CompiledLayer(
            lambda: own_modules.SensorSignals(channels // SAMPLES), _signals, is_wide=True
        ),
        'EGNN, own module': CompiledLayer(
            lambda: own_modules.Equivariant(channels), _with(pos=_position), is_wide=True
        ),
        'network, own module': CompiledLayer(lambda: own_modules.Network(channels), is_wide=True),
        'attention, own module': CompiledLayer(lambda: own_modules.Attention(channels, HEADS), is_wide=True),
        'hops, own module': CompiledLayer(lambda: own_modules.Hops(channels)),
        'links, own module': CompiledLayer(lambda: own_modules.Links(channels)),
        'sparse attention, own module': CompiledLayer(
            lambda: own_modules.SparseAttention(channels, HEADS), _data, is_wide=True
        ),
        'edge states, own module': CompiledLayer(lambda: own_modules.EdgeStates(channels, HEADS), _data, is_wide=True),
        'tracks, own module': CompiledLayer(
            lambda: own_modules.Tracks(channels), _with(edge_attr=_of_edges(channels)), is_wide=True
        ),
        'both ways, own module': CompiledLayer(
            lambda: own_modules.WeighedBothWays(channels), _with(edge_weight=_edge_weight)
        ),
        'cross attention, own module': CompiledLayer(
            lambda: own_modules.CrossAttention(channels, HEADS), _with(others=_others), is_wide=True
        ),
        'links between sets, own module': CompiledLayer(own_modules.LinksBetween, _with(others=_others)),
        'hyperedges, own module': CompiledLayer(lambda: own_modules.Hyperedges(channels), _with(others=_others)),
        'chosen edges, own module': CompiledLayer(
            lambda: of_made_edges.ChosenEdges(channels), _with(edge_type=_types(RELATIONS))
        ),
        'relations, own module': CompiledLayer(
            lambda: of_made_edges.Relations(channels, RELATIONS), _with(edge_type=_types(RELATIONS))
        ),
        'both directions, own module': CompiledLayer(
            lambda: of_made_edges.BothDirections(channels), _with(edge_weight=_edge_weight), is_wide=True
        ),
        'loops behind, own module': CompiledLayer(
            lambda: of_made_edges.LoopsBehind(channels), _with(edge_weight=_edge_weight)
        ),
        'sparse matrix, own module': CompiledLayer(of_made_edges.SparseMatrix),
        "DimeNet's InteractionBlock": CompiledLayer(
            lambda: InteractionBlock(channels, EDGE_DIM, 7, 6, 1, 2, F.silu), _triplets, is_wide=True
        ),
        'APPNP': CompiledLayer(lambda: pyg.APPNP(K=10, alpha=0.1)),
        'ARMAConv': CompiledLayer(lambda: pyg.ARMAConv(**widths, num_stacks=2, num_layers=2)),
        'ChebConv': CompiledLayer(lambda: pyg.ChebConv(**widths, K=3)),
        'ClusterGCNConv': CompiledLayer(lambda: pyg.ClusterGCNConv(**widths)),
        'EGConv': CompiledLayer(lambda: pyg.EGConv(**widths, num_heads=HEADS, aggregators=['symnorm', 'max', 'mean'])),
        'FeaStConv': CompiledLayer(lambda: pyg.FeaStConv(**widths, heads=HEADS), is_wide=True),
        'FiLMConv': CompiledLayer(
            lambda: pyg.FiLMConv(**widths, num_relations=RELATIONS), _with(edge_type=_types(RELATIONS))
        ),
        'GCN2Conv': CompiledLayer(lambda: pyg.GCN2Conv(channels, alpha=0.1), _with(x_0=_features)),
        'GENConv': CompiledLayer(lambda: pyg.GENConv(**widths, learn_t=True)),
        'GatedGraphConv': CompiledLayer(lambda: pyg.GatedGraphConv(channels, num_layers=3)),
        'GeneralConv': CompiledLayer(lambda: pyg.GeneralConv(**widths, attention=True, heads=HEADS), is_wide=True),
        'HANConv': CompiledLayer(lambda: pyg.HANConv(channels, channels, METADATA, heads=HEADS), _typed),
        'HEATConv': CompiledLayer(
            lambda: pyg.HEATConv(channels, channels // HEADS, heads=HEADS, **HEAT),
            _with(node_type=_node_types, edge_type=_types(RELATIONS), edge_attr=_of_edges(EDGE_DIM)),
            is_wide=True,
        ),
        'HypergraphConv': CompiledLayer(lambda: pyg.HypergraphConv(**widths), _hypergraph),
        'LEConv': CompiledLayer(lambda: pyg.LEConv(**widths)),
        'LGConv': CompiledLayer(pyg.LGConv),
        'MFConv': CompiledLayer(lambda: pyg.MFConv(**widths)),
        'MixHopConv': CompiledLayer(lambda: pyg.MixHopConv(**widths)),
        'NNConv': CompiledLayer(
            lambda: pyg.NNConv(narrow, narrow, Linear(EDGE_DIM, narrow * narrow)),
            _with(edge_attr=_of_edges(EDGE_DIM)),
            narrow,
            True,
        ),
        'NNConv, network': CompiledLayer(
            lambda: pyg.NNConv(
                half, half, Sequential(Linear(EDGE_DIM, channels), ReLU(), Linear(channels, half * half))
            ),
            _with(edge_attr=_of_edges(EDGE_DIM)),
            half,
            True,
        ),
        # longer paths are powers of the adjacency, which PyG multiplies out
        'PANConv': CompiledLayer(lambda: pyg.PANConv(**widths, filter_size=1), is_wide=True),
        'PDNConv': CompiledLayer(
            lambda: pyg.PDNConv(**widths, edge_dim=EDGE_DIM, hidden_channels=narrow),
            _with(edge_attr=_of_edges(EDGE_DIM)),
        ),
        'PNAConv': CompiledLayer(
            lambda: pyg.PNAConv(**widths, **PNA, deg=torch.ones(100, dtype=torch.int64)), is_wide=True
        ),
        'PPFConv': CompiledLayer(
            lambda: pyg.PPFConv(_network(channels + 4, channels), add_self_loops=False),
            _with(pos=_position, normal=_normal),
            is_wide=True,
        ),
        'PointGNNConv': CompiledLayer(
            lambda: pyg.PointGNNConv(
                _network(channels, channels, 3), Linear(channels + 3, channels), _network(channels, channels)
            ),
            _with(pos=_position),
        ),
        'PointNetConv': CompiledLayer(
            lambda: pyg.PointNetConv(_network(channels + 3, channels), add_self_loops=False),
            _with(pos=_position),
            is_wide=True,
        ),
        'PointTransformerConv': CompiledLayer(
            lambda: pyg.PointTransformerConv(**widths), _with(pos=_position), is_wide=True
        ),
        'PointTransformerConv, networks': CompiledLayer(
            lambda: pyg.PointTransformerConv(
                **widths, pos_nn=_network(3, channels), attn_nn=_network(channels, channels)
            ),
            _with(pos=_position),
            is_wide=True,
        ),
        'SGConv': CompiledLayer(lambda: pyg.SGConv(**widths, K=2)),
        'SSGConv': CompiledLayer(lambda: pyg.SSGConv(**widths, alpha=0.1, K=4)),
        'SignedConv': CompiledLayer(lambda: pyg.SignedConv(**widths, first_aggr=True), _signed),
        'SimpleConv': CompiledLayer(lambda: pyg.SimpleConv('mean')),
        'SuperGATConv': CompiledLayer(lambda: pyg.SuperGATConv(**attention), is_wide=True),
        'TAGConv': CompiledLayer(lambda: pyg.TAGConv(**widths)),
        'WLConvContinuous': CompiledLayer(pyg.WLConvContinuous, _with(edge_weight=_edge_weight)),
    }


_PACKAGES = {'PANConv': 'torch_sparse', 'maxima of torch_scatter, own module': 'torch_scatter'}


def fused_copy(plain: Module) -> Module:
    """A copy of a layer that is compiled, and has its layers fused if there are any within it."""
    layers = [type(part) for part in plain.modules() if isinstance(part, pyg.MessagePassing)]
    return pygfuse.fuse(copy.deepcopy(plain), include=[type(plain), *layers])


def layers(channels: int = CHANNELS) -> dict[str, CompiledLayer]:
    """All of them, of so many channels, but for those of a package that is not there."""
    missing = {name for name, package in _PACKAGES.items() if importlib.util.find_spec(package) is None}
    made = {name: layer for name, layer in _of_width(channels).items() if name not in missing}
    return {name: dataclasses.replace(layer, channels=layer.channels or channels) for name, layer in made.items()}
