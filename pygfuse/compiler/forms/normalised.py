"""What is normalised over all edges, in memory: other work on edges reads it there."""

from __future__ import annotations

from collections.abc import Sequence

from pygfuse.compiler.forms.kept import all_in_order, with_kept
from pygfuse.compiler.ir.values import EDGE, SOURCE, TARGET, Node, is_brought, returned_of_edges
from pygfuse.compiler.refusal import Refused


def normalised_kept(output: Node) -> Node:
    """The results of a layer, whose normalisations over all edges are PyTorch's, of values in memory.

    Args:
        output: The results.

    Raises:
        Refused: If nothing is normalised over all edges.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf, value
        >>> x_i, x_j = (leaf('x', side, (4,), torch.float32) for side in ('target', 'source'))
        >>> normed = value('batch_norm', value('sub', x_i, x_j), module=torch.nn.BatchNorm1d(4))
        >>> [node.op for node in in_order(normalised_kept(value('reduce', value('exp', normed), reduce='sum')))]
        ['kept', 'batch_norm', 'exp', 'reduce']
    """
    order = all_in_order(output)
    return _kept(output, order, order)


def returned_normalised_kept(output: Node) -> Node:
    """The same of normalisations that values of edges are computed of which a layer returns.

    These are in memory anyway. A network would compute what is normalised again for its moments, and in backward.
    """
    found = {id(node): node for returned in returned_of_edges(output) for node in all_in_order(returned)}
    return _kept(output, list(found.values()), all_in_order(output))


def _kept(output: Node, among: Sequence[Node], order: Sequence[Node]) -> Node:
    normalised = [node for node in among if node.op == 'batch_norm' and node.residency == EDGE]
    if not normalised:
        raise Refused('nothing that is normalised over all edges')
    read = {id(node): node.args[0] for node in normalised}
    # what nodes alone decide has a row for each edge
    of_nodes = {key: x for key, x in read.items() if x.residency in (SOURCE, TARGET)}
    of_edges = [x for x in read.values() if x.residency == EDGE and x.op != 'kept']
    beside = [term for x in of_edges for term in _beside_ends(x) if not is_brought(term)]
    return with_kept(output, [*of_edges, *beside], order, of_nodes).message


def _beside_ends(x: Node) -> list[Node]:
    """What edges compute, or what is mapped of it, that is added to values of sources and targets."""
    terms, stack = [], [x]
    while stack:
        node = stack.pop()
        if node.op in ('add', 'sub') and node.residency == EDGE and not is_brought(node):
            stack += node.parents()
        else:
            terms.append(node)
    if not any(term.residency in (SOURCE, TARGET) for term in terms):
        return []
    return [term.args[0] if term.op == 'linear' else term for term in terms if term.residency == EDGE]
