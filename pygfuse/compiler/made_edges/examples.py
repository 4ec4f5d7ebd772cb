"""Examples of what a call brings: some edges, and more, of which functions of edges are computed while a module is
captured, so that shapes tell what counts edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import EDGE, SHARED, Node
from pygfuse.compiler.made_edges.remade import Made
from pygfuse.compiler.refusal import Refused

# of two examples: numbers of nodes
EXAMPLE_NODES = 5, 7
# numbers of edges, of which some are loops; those of all arguments are as many
_EDGES = 13, 27


def example_edges(k: int) -> Tensor:
    """Edges of the first example or of the second."""
    places = torch.arange(_EDGES[k])
    return torch.stack([places % EXAMPLE_NODES[k], (3 * places + 1) % EXAMPLE_NODES[k]])


def example_numbers(node: Node, k: int) -> Tensor:
    """Numbers for a value that a call or the layer holds, in the first example or the second."""
    rows = {SHARED: (), EDGE: (_EDGES[k],)}.get(node.residency, (EXAMPLE_NODES[k],))
    shape = (*rows, *node.shape)
    places = torch.arange(torch.Size(shape).numel()).view(shape)
    if node.dtype.is_floating_point:
        return (places / max(1, places.numel()) * 4 - 1.5).to(node.dtype)
    return (places % 3).to(node.dtype)


def on_examples(function: Callable, args: tuple, keywords: tuple = ()) -> tuple[Any, Any]:
    """What a function gives of both examples.

    Args:
        function: The function.
        args, keywords: What it is given, as of `Made`.

    Raises:
        Refused: If it gives nothing.
    """
    few, many = (_on_example(function, args, keywords, k) for k in range(2))
    return few, many


def _on_example(function: Callable, args: tuple, keywords: tuple, k: int) -> Any:
    def example(item: Any) -> Any:
        if isinstance(item, Made):
            return item.examples[k]
        if isinstance(item, torch.device):
            return torch.device('cpu')
        return item

    try:
        found, named = rebuilt((args, dict(keywords)), example)
        return function(*found, **named)
    except Exception as error:
        raise Refused(f'{function.__name__} of edges, tried with a few others: {error}') from error


def brought_edges(said: Any, edge_index: Tensor) -> Made:
    """Edges that an argument brings.

    Args:
        said: What says that they are meant.
        edge_index: Those of a call.
    """
    examples = tuple([example_edges(k).to(edge_index.dtype) for k in range(2)])
    return Made(None, (said,), examples=examples, is_whole=True)
