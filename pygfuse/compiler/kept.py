"""Narrow values of edges that are kept in memory, so that what is computed of them has a program or a network.

A distance, a basis of radial functions, the score of a few heads: a kernel that has no words for how they are computed
can read them. Something that is computed of them is several times as wide, and they are the only values of edges that
are kept.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pygfuse.compiler.chunked import OF_ALL_EDGES
from pygfuse.compiler.emission import Factors, is_leaf
from pygfuse.compiler.ir import EDGE, Node, computed_on_edges, in_order, leaf, mapped, nodes_in
from pygfuse.compiler.lowering import Walk
from pygfuse.compiler.network import Network
from pygfuse.compiler.refusal import Refused
from pygfuse.ops.edge_values import DTYPES

# what takes long on edges
_MAPS = ('linear', 'matmul', 'einsum')
F = TypeVar('F', Walk, Network)


@dataclasses.dataclass(frozen=True)
class Apart:
    """A message whose widest narrow values are values that a call brings, as far as what reads them can tell.

    Attributes:
        message: The message.
        kept: What stands in the place of each of these, by the identity of what stands there.
    """

    message: Node
    kept: Mapping[int, Node]

    def back(self, form: F) -> F:
        """A form of this message, with operands that are computed of the values themselves."""
        return dataclasses.replace(form, operands={name: self._back(value) for name, value in form.operands.items()})

    def _back(self, operand: Node | Factors) -> Node | Factors:
        if isinstance(operand, Factors):
            return Factors(self._back(operand.features), self._back(operand.weight))
        return _replaced(operand, self.kept)


def narrow_values_apart(message: Node, share: int) -> Apart:
    """Takes narrow values of edges out of a message.

    Args:
        message: The message, on edges.
        share: How many times as wide as they something is that is computed of them, at least.

    Raises:
        Refused: If there are none, or a linear map is computed both for them and for the rest.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir import value
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> distance = value('norm', value('sub', x_i, x_j), p=2, dim=(1,), keepdim=True)
        >>> apart = narrow_values_apart(value('mul', distance, x_j), 4)
        >>> [node.op for node in apart.kept.values()], [node.op for node in apart.message.parents()]
        (['norm'], ['input', 'input'])
    """
    kept = _topmost(message, share)
    if not kept:
        raise Refused('no values of edges that are narrow')
    _check_mapped_once(message, kept)
    stand_ins = {id(node): leaf(f'kept {k}', EDGE, node.shape, node.dtype) for k, node in enumerate(kept)}
    return Apart(_replaced(message, stand_ins), {id(stand_ins[id(node)]): node for node in kept})


def _topmost(message: Node, share: int) -> list[Node]:
    """The values that are kept, none of which another one is computed of."""
    widest = {id(message): message.width}
    found: dict[int, Node] = {}
    # each before what it is computed of
    for node in reversed(computed_on_edges(message)):
        above = widest.get(id(node))
        if above is None or is_leaf(node):
            continue
        if share * node.width <= above and _may_be_kept(node):
            found[id(node)] = node
            continue
        for parent in node.parents():
            widest[id(parent)] = max(above, node.width, widest.get(id(parent), 0))
    return list(found.values())


def _may_be_kept(node: Node) -> bool:
    return node.dtype in DTYPES and not any(inner.op in OF_ALL_EDGES for inner in computed_on_edges(node))


def _check_mapped_once(message: Node, kept: Sequence[Node]) -> None:
    known = {id(node) for node in kept}
    parts = [computed_on_edges(node) for node in kept]
    parts.append(computed_on_edges(message, without=known))
    counts = collections.Counter(id(node) for part in parts for node in part if node.op in _MAPS)
    if any(count > 1 for count in counts.values()):
        raise Refused('a linear map of values of edges that several values are computed of')


def _replaced(output: Node, others: Mapping[int, Node]) -> Node:
    """A value with others in the place of some that it is computed of, which have the same shapes."""
    found: dict[int, Node] = {}
    for node in in_order(output):
        if id(node) in others:
            found[id(node)] = others[id(node)]
            continue
        args = mapped(node.args, lambda parent: found[id(parent)])
        is_same = all(a is b for a, b in zip(nodes_in(args), node.parents(), strict=True))
        found[id(node)] = node if is_same else dataclasses.replace(node, args=args)
    return found[id(output)]
