"""Options that several benchmarks take: which graph, and which layers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pygfuse.bench.case import Options
from pygfuse.bench.datasets import planetoid, tolokers
from pygfuse.bench.files import pairs_of_text
from pygfuse.bench.graphs import GraphData, power_law
from pygfuse.bench.layers import Layer, layers


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """The options that `chosen_graph` reads."""
    parser.add_argument('--root', default='data/Tolokers', help='where PyG keeps Tolokers, or downloads it to')
    parser.add_argument('--planetoid', metavar='NAME', help='Cora, CiteSeer or PubMed instead, kept under ROOT')
    parser.add_argument('--snap', metavar='FILE', help='a list of edges in text instead, for example web-NotreDame')
    parser.add_argument('--power-law', nargs=2, type=int, metavar=('NODES', 'EDGES'), help='a generated graph instead')


SMALL = {'power_law': (200, 2000)}  # options of a quick run


def chosen_graph(options: Options) -> GraphData:
    """The graph that the options name; it is read once."""
    if not hasattr(options, 'graph'):
        options.graph = _read(options)
    return options.graph


def _read(options: Options) -> GraphData:
    if options.power_law:
        return power_law(*options.power_law)
    if options.snap:
        edge_index = pairs_of_text(Path(options.snap))
        return edge_index, int(edge_index.max()) + 1
    return planetoid(options.root, options.planetoid) if options.planetoid else tolokers(options.root)


def graph_settings(options: Options) -> dict[str, Any]:
    """What a result says of the graph."""
    edge_index, num_nodes = chosen_graph(options)
    name = 'power law' if options.power_law else options.planetoid or 'Tolokers'
    name = Path(options.snap).name.partition('.')[0] if options.snap else name
    return {'graph': name, 'nodes': num_nodes, 'edges': edge_index.shape[1]}


def layer_settings(options: Options) -> dict[str, Any]:
    """What a result says of the graph and of the layers' width."""
    return {**graph_settings(options), 'heads': options.heads, 'channels': options.channels}


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
