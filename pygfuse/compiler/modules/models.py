"""The models of a graph network, of edges and of nodes, captured: modules that are called as a ``MetaLayer`` does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch.nn import Module

from pygfuse.compiler.capture.layers import Captured, Given, captured, device_of, symbol_of
from pygfuse.compiler.capture.watch import Guards
from pygfuse.compiler.ir.values import EDGE, SOURCE, TARGET
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.places import EdgeIndexRows
from pygfuse.compiler.symbols.symbol import Symbol


def capture_edge_model(model: Module, given: Mapping[str, Given | None], guards: Guards) -> Captured:
    """Captures a module that is called with sources, targets, features of edges, of graphs, and the graph of an edge.

    Args:
        model: The module.
        given: ``x``, ``edge_attr``, ``u`` and ``batch``; features of nodes reside with targets.
        guards: Where to remember what was read of it, also if it is refused.

    Raises:
        Refused: If it has no intermediate representation, or does not return a row for each edge.
    """
    source, target = (_at_ends(given['x'], 'x', side) for side in (SOURCE, TARGET))
    rest = *_of_edges_and_graphs(given), _at_ends(given['batch'], 'batch', SOURCE)
    found = captured(lambda watched: watched(source, target, *rest), model, guards, device_of(given))
    if found.output.residency != EDGE:
        raise Refused('it returns something else than a row for each edge')
    return found


def capture_node_model(
    model: Module, given: Mapping[str, Given | None], guards: Guards, target_row: int = 1
) -> Captured:
    """Captures a module that is called with nodes, edges, their features, those of graphs, and the graph of a node.

    Arguments and errors are those of `capture_edge_model`; `target_row` is the row of the nodes to which it reduces.
    """
    x, batch = (_of_nodes(given[name], name) for name in ('x', 'batch'))
    rest = _of_edges_and_graphs(given)
    found = captured(
        lambda watched: watched(x, EdgeIndexRows(target_row), *rest, batch), model, guards, device_of(given)
    )
    if found.output.residency != TARGET or found.output.op == 'results':
        raise Refused('it returns something else than a row for each node')
    return found


def _of_edges_and_graphs(given: Mapping[str, Given | None]) -> list[Symbol | None]:
    return [symbol_of(name, given[name]) for name in ('edge_attr', 'u')]


def _at_ends(given: Given | None, name: str, side: str) -> Symbol | None:
    """Features of nodes as they are at one end of each edge."""
    return None if given is None else symbol_of(name, dataclasses.replace(given, residency=side))


def _of_nodes(given: Given | None, name: str) -> Symbol | None:
    """Features of nodes, which are sources and targets."""
    return None if given is None else symbol_of(name, dataclasses.replace(given, residency=TARGET, is_of_all=True))
