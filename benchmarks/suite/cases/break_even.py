"""From how many edges on a fused layer is faster than PyG's, and up to how wide features of edges.

A training step (forward and backward, gradients of inputs and parameters) of one layer, 64 to 4 x 16 channels or other
widths that are asked for, on random graphs of ten edges a node or as many as asked for: with the same ``edge_index`` in
each step, and with a new one, as from a loader, whose edges are sorted anew. Then layers with features of edges, whose
linear map belongs to the step. Layers that are compiled (`pygfuse.bench.compiled_layers`), too, where they are named,
or all by ``compiled``. Other kinds of adjacencies, too: of these each edge is there once, and none is a self-loop.
All sides in turn, in one process; medians in ms with the quartiles in brackets.

    python benchmarks/break_even.py
    python benchmarks/break_even.py --convs compiled --edges 100 1000 10000 --neighbours 4 --edge-features --in-a-row 20
    python benchmarks/break_even.py --convs compiled --channels 8 32 128 --which "the same" --edge-features
    python benchmarks/break_even.py --convs GCNConv SGConv --adjacency SparseTensor csr EdgeIndex --edge-features
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import EdgeIndex
from torch_geometric.index import index2ptr
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import coalesce, remove_self_loops

from pygfuse.bench.case import RATIOS, Measurement, Options, benchmark
from pygfuse.bench.cases.compiled import output_of, step_of
from pygfuse.bench.compiled_layers import fused_copy
from pygfuse.bench.compiled_layers import layers as compiled_layers
from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import IN_CHANNELS, Layer, Training, check_fused, layers
from pygfuse.bench.timing import Step

HEADS, CHANNELS = 4, 16
WHICH = ['the same', 'new']
# beyond so many edges PyG's steps take long
FEW_REPEATS_FROM = 50_000


def _matrix(pairs: Tensor, nodes: int) -> Any:
    return SparseTensor(row=pairs[1], col=pairs[0], sparse_sizes=(nodes, nodes), is_sorted=True)


def _csr(pairs: Tensor, nodes: int) -> Tensor:
    pointer, ones = index2ptr(pairs[1], nodes), torch.ones(pairs.shape[1])
    return torch.sparse_csr_tensor(pointer, pairs[0].clone(), ones, (nodes, nodes), check_invariants=False)


def _edge_index(pairs: Tensor, nodes: int) -> EdgeIndex:
    return EdgeIndex(pairs, sparse_size=(nodes, nodes), sort_order='col')


# of edges by target
ADJACENCIES: dict[str, Callable[[Tensor, int], Any]] = {
    'SparseTensor': _matrix,
    'csr': _csr,
    'EdgeIndex': _edge_index,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(repeats=100)
    parser.add_argument('--convs', nargs='*', default=['GCNConv', 'GINConv', 'GATConv'], help='which layers')
    parser.add_argument('--edges', nargs='*', type=int, default=[100, 1_000, 10_000, 100_000])
    parser.add_argument('--channels', nargs='*', type=int, default=[HEADS * CHANNELS], help='widths, of all heads')
    parser.add_argument('--which', nargs='*', choices=WHICH, default=WHICH, help='whether edges are met again')
    parser.add_argument('--neighbours', type=int, default=10, help='edges of each node')
    parser.add_argument('--adjacency', nargs='*', choices=['edge_index', *ADJACENCIES], default=['edge_index'])
    parser.add_argument('--edge-features', nargs='*', type=int, default=[8, 32, 64, 256])
    parser.add_argument('--most-edges', type=int, default=100_000, help='edges of the graph with features of edges')
    parser.add_argument('--compile', action='store_true', help='also both layers under torch.compile')


def _has_widths(options: Options) -> bool:
    """Whether other widths are measured than the usual one."""
    return options.channels != [HEADS * CHANNELS]


def with_edge_features(size: int) -> dict[str, Layer]:
    """Layers whose edges have so many features."""
    attention = (IN_CHANNELS, CHANNELS), {'heads': HEADS, 'edge_dim': size}, {'edge_attr': size}
    linear = torch.nn.Linear(IN_CHANNELS, HEADS * CHANNELS)
    return {
        'GATv2Conv': Layer('GATv2Conv', *attention),
        'TransformerConv': Layer('TransformerConv', *attention),
        'GINEConv': Layer('GINEConv', (linear,), {'edge_dim': size}, {'edge_attr': size}),
    }


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    for layer in [*compiled_layers()] if options.convs == ['compiled'] else options.convs:
        for kind in options.adjacency:
            of_kind = {} if kind == 'edge_index' else {'adjacency': kind}
            for channels in options.channels:
                of_width = {'channels': channels} if _has_widths(options) else {}
                for edges in options.edges:
                    for which in options.which:
                        yield {'layer': layer, **of_kind, **of_width, 'edges': edges, 'edge_index': which}
    for layer in with_edge_features(1):
        for size in options.edge_features:
            yield {'layer': layer, 'edges': options.most_edges, 'edge_index': 'the same', 'edge_dim': size}


@benchmark(
    'break_even',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {
        'heads': HEADS,
        **({} if _has_widths(options) else {'channels': CHANNELS}),
        'neighbours': options.neighbours,
    },
    ratios=(*RATIOS, ('PyG compiled', 'pygfuse compiled')),
    quick={'edges': [100], 'edge_features': [8], 'most_edges': 500},
)
def break_even(
    options: Options,
    layer: str,
    edges: int,
    edge_index: str,
    edge_dim: int = 0,
    adjacency: str = 'edge_index',
    channels: int = HEADS * CHANNELS,
) -> Measurement:
    """One layer on one graph."""
    pairs, nodes = power_law(max(edges // options.neighbours, 2), edges)
    if adjacency != 'edge_index':
        pairs = coalesce(remove_self_loops(pairs)[0], num_nodes=nodes, sort_by_row=False)
    made = ADJACENCIES.get(adjacency, lambda pairs, nodes: pairs)
    of_layer = _compiled if layer in compiled_layers() else _written
    plain, fused, step_of, take_edges = of_layer(layer, pairs, nodes, edge_dim, channels)
    take_edges(made(pairs, nodes))

    def next_edges() -> None:
        if edge_index == 'new':
            take_edges(made(pairs.clone(), nodes))

    repeats = options.repeats if edges < FEW_REPEATS_FROM else max(5, options.repeats // 10)
    sides = {'PyG': plain, 'pygfuse': fused}
    if options.compile:
        torch.compiler.reset()
        sides |= {f'{side} compiled': torch.compile(copy.deepcopy(module)) for side, module in sides.items()}
    yield [Step(side, step_of(module), next_edges, repeats, 2) for side, module in sides.items()]
    check_fused(fused)
    return {}


Sides = tuple[Module, Module, Callable[[Module], Callable[[], None]], Callable[[Any], None]]


def _written(layer: str, pairs: Tensor, nodes: int, edge_dim: int, channels: int) -> Sides:
    """Both sides of a layer that is written, its training step, and what gives it other edges."""
    made = (with_edge_features(edge_dim) if edge_dim else layers(HEADS, channels // HEADS, channels))[layer]
    plain, fused = made.pair()
    training = Training(made, pairs, nodes)
    grad = torch.randn_like(training.forward(plain))
    return (
        plain,
        fused,
        lambda module: training.step(module, grad),
        lambda taken: setattr(training, 'edge_index', taken),
    )


def _compiled(layer: str, pairs: Tensor, nodes: int, edge_dim: int, channels: int) -> Sides:
    """The same of one that is compiled."""
    made = compiled_layers(channels)[layer]
    plain = made.make()
    fused = fused_copy(plain)
    x = torch.randn(nodes, made.channels, requires_grad=True)
    given = dict(made.given(x, pairs))
    grad = torch.randn_like(output_of(plain, given))

    def take_edges(taken: Any) -> None:
        given.update(made.given(x, taken))

    return plain, fused, lambda module: step_of(module, given, x, grad), take_edges
