"""Dropouts within messages: each is drawn for one form, as another one would draw other numbers."""

from __future__ import annotations

from collections.abc import Iterable

from pygfuse.compiler.ir import Node, computed_on_edges
from pygfuse.compiler.refusal import Refused


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
