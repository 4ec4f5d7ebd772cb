"""Nodes without edges: PyG computes nothing of them before it aggregates, and nothing of them may reach a gradient.

Where a message is computed once a node, a node that no edge reads is computed, too; its gradient is 0. But 0 times the
derivative of a root or of a quotient at 0 is no number. Where such operators are applied to nodes, those without edges
take the values of one that has edges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from pygfuse.compiler.ir.values import REDUCTIONS, SOURCE, TARGET, Node, written_of_nodes
from pygfuse.graph.adjacency import target_row_of
from pygfuse.ops import Edges

# operators with derivatives that are not finite
_SINGULAR = (
    'log', 'log1p', 'sqrt', 'rsqrt', 'reciprocal', 'pow', 'exp', 'expm1', 'norm', 'normalize', 'std', 'prod',
    'hypot', 'atan2', 'asin', 'acos', 'acosh', 'atanh', 'log2', 'log10', 'cumprod', 'logaddexp', 'tan', 'sinh', 'cosh',
    'exp2',
)  # fmt: skip


class Guarded(NamedTuple):
    """Values of nodes of which those without edges are replaced.

    Attributes:
        residencies: Where they reside.
        gathered_alone: Whether these are gathered ones alone, or all that a call brings.
    """

    residencies: frozenset[str]
    gathered_alone: bool

    def has(self, node: Node) -> bool:
        """Whether a value is one of them."""
        is_one = node.op in ('of_sources', 'of_targets') or (node.op == 'input' and not self.gathered_alone)
        return is_one and node.residency in self.residencies


def guarded_sides(steps: Collection[Node], operands: Iterable[Node]) -> frozenset[str]:
    """The residencies of nodes to which such an operator is applied that somebody wrote of edges.

    Args:
        steps: All values that are computed.
        operands: Those that walks read at the ends of edges.
    """
    of_all = written_of_nodes(steps)
    found, seen, stack = set(), set(), list(operands)
    while stack:
        node = stack.pop()
        if id(node) not in seen and id(node) not in of_all and node.op not in REDUCTIONS:
            seen.add(id(node))
            stack += node.parents()
            if node.residency in (SOURCE, TARGET) and may_be_singular(node):
                found.add(node.residency)
    return frozenset(found)


def may_be_singular(node: Node) -> bool:
    """Whether the derivative of a value by what it is computed of may be infinite.

    Example:
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x = leaf('x', SOURCE, (4,), torch.float32)
        >>> may_be_singular(value('log', x)), may_be_singular(value('div', x, 2.0))
        (True, False)
    """
    if node.op == 'div':
        divisor = node.args[1]
        # nodes that are computed are there
        return isinstance(divisor, Node) and divisor.op != 'number_of_rows'
    return node.op in _SINGULAR


def with_edges_only(x: Tensor, edges: Edges, residency: str) -> Tensor:
    """Rows of nodes, those without edges replaced by a row of one with edges.

    Example:
        >>> edges = Edges(torch.tensor([[0, 2], [1, 1]]), 3, 3)
        >>> with_edges_only(torch.tensor([[1.0], [0.0], [3.0]]), edges, 'source').flatten().tolist()
        [1.0, 1.0, 3.0]
    """
    if torch.compiler.is_compiling():
        row = target_row_of(edges.flow)
        nodes = edges.token[row if residency == TARGET else 1 - row]
        touched = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device).index_fill(0, nodes.long(), True)
        return x.index_select(0, _rows_with_edges(touched))
    graph = edges.graph()

    def rows() -> Tensor | bool:
        pointer = (graph.csc if residency == SOURCE else graph.csr).indptr
        touched = pointer.diff() > 0
        return True if bool(touched.all()) else _rows_with_edges(touched)

    found = graph.memo.get_or_make(('nodes with edges', residency), rows)
    return x if found is True else x.index_select(0, found)


def _rows_with_edges(touched: Tensor) -> Tensor:
    """For each node itself if it has edges, else any that has."""
    places = torch.arange(touched.shape[0], device=touched.device)
    return torch.where(touched, places, touched.to(torch.uint8).argmax())
