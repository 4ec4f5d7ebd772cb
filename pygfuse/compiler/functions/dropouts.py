"""Dropouts of edges and of nodes: each is drawn for one form, as another one would draw other numbers."""

from __future__ import annotations

from collections.abc import Iterable

from pygfuse.compiler.ir.values import EDGE, Node, computed_on_edges, in_order
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, OF_NODES
from pygfuse.compiler.symbols.symbol import Symbol, handler, made

_OF_ALL_NODES = 'dropout_of_nodes', 'norm_of_nodes', 'layer'


def dropouts_in(message: Node) -> list[Node]:
    """The dropouts that are drawn to compute values of edges."""
    return [node for node in computed_on_edges(message) if node.op == 'dropout']


def check_drawn_once(roots: Iterable[Node], readers: str) -> None:
    """Checks that values which have forms of their own share no dropout.

    Args:
        roots: What the forms compute.
        readers: What they are, for people.

    Raises:
        Refused: If two of them would draw the same one.
    """
    draws = [id(node) for root in roots for node in dropouts_in(root)]
    if len(set(draws)) < len(draws):
        raise Refused(f'dropout of values that several {readers}')


def check_taken_once(steps: Iterable[Node], captured: Node) -> None:
    """Checks that what is drawn, or normalised, of all nodes is one value wherever it is read.

    Args:
        steps: What a plan computes.
        captured: What was captured.

    Raises:
        Refused: If a pass made two of one.
    """
    counts = [sum(node.op in _OF_ALL_NODES for node in nodes) for nodes in (steps, in_order(captured))]
    if counts[0] > counts[1]:
        raise Refused('dropout or normalisation of nodes that would be taken twice')


@handler('feature_dropout')
def _feature_dropout(x: Symbol, p: float = 0.5, training: bool = True) -> Symbol:
    if x.dim() > 2:
        raise Refused('dropout of whole channels')
    return _dropout(x, p, training)


@handler('dropout')
def _dropout(x: Symbol, p: float = 0.5, training: bool = True) -> Symbol:
    if not training or p == 0.0:
        return x
    if x.rows in OF_NODES:
        return made('dropout_of_nodes', x, p=float(p))
    if x.rows is None or (x.node.residency != EDGE and x.rows != NUM_EDGES):
        raise Refused('dropout of something that is no value of edges')
    return made('dropout', x, p=float(p))
