"""Values of edges that are kept in memory, so that what is computed of them has a program or a network.

A distance, a basis of radial functions, the score of a few heads: a kernel that has no words for how they are computed
can read them. Something that is computed of them is several times as wide, and they are the only values of edges that
are kept. What networks give may be as wide as a message: of an attention with a weight for each channel, scores and
what is weighed are kept, and nothing between.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pygfuse.compiler.functions.dropouts import check_drawn_once
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import (
    EDGE,
    OF_ALL_EDGES,
    SHARED,
    SOURCE,
    TARGET,
    Node,
    computed_on_edges,
    in_order,
    is_brought,
    is_seen,
    results_of,
    value,
    with_args,
)
from pygfuse.compiler.ir.values import kept as in_memory
from pygfuse.compiler.networks.reading import ACTIVATIONS
from pygfuse.compiler.programs.emission import is_leaf
from pygfuse.compiler.programs.words import WORDS
from pygfuse.compiler.refusal import Refused
from pygfuse.ops.edge_values import DTYPES

# what takes long on edges
_MAPS = ('linear', 'matmul', 'einsum')
# how many times as wide as values that are kept something is that is computed of them: the fewer are kept, the better
SHARES = (16, 8, 4, 2)
# what takes rows of several edges together, as does a layer, of all that it is given
_TOGETHER = ('softmax_of_sources', 'of_other_edges', 'typed_map')
# those that are computed of values in memory alone
_NEVER_APART = ('of_other_edges', 'layer')


@dataclasses.dataclass(frozen=True)
class Apart:
    """A message that reads values of edges in memory.

    Attributes:
        message: The message.
        kept: These values, each after those that it reads.
    """

    message: Node
    kept: tuple[Node, ...]


def narrow_values_apart(message: Node, share: int) -> Apart:
    """Takes the widest narrow values of edges out of a message.

    Args:
        message: The message, on edges.
        share: How many times as wide as they something is that is computed of them, at least.

    Raises:
        Refused: If there are none, or a linear map is computed both for them and for the rest.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_i, x_j = (leaf('x', side, (4,), torch.float32) for side in ('target', 'source'))
        >>> distance = value('norm', value('sub', x_i, x_j), p=2, dim=(1,), keepdim=True)
        >>> apart = narrow_values_apart(value('mul', distance, x_j), 4)
        >>> [node.op for node in apart.kept], [node.op for node in apart.message.parents()]
        (['norm'], ['kept', 'input'])
    """
    kept = _topmost(message, share)
    if not kept:
        raise Refused('no values of edges that are narrow')
    _check_mapped_once(message, kept)
    return taken_apart(message, kept, computed_on_edges(message))


def networks_apart(message: Node, is_wanted: bool = False) -> Apart:
    """Takes what networks of linear maps give out of a message: the last value of each, and what several read.

    Args:
        message: The message, on edges.
        is_wanted: Whether the message is to be a network's values itself: then what its own network reads of others.

    Raises:
        Refused: If there is none.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_j, x_i = (leaf('x', side, (4,), torch.float32) for side in ('source', 'target'))
        >>> weight = leaf('weight', 'shared', (4, 4), torch.float32)
        >>> score = value('linear', value('relu', value('sub', x_i, x_j)), weight)
        >>> apart = networks_apart(value('mul', value('softmax', score), x_j))
        >>> [node.op for node in apart.kept]
        ['linear']
    """
    order = computed_on_edges(message)
    readers = collections.Counter(parent for node in order for parent in {id(parent) for parent in node.parents()})
    found: dict[int, Node] = {}
    outside = set() if is_wanted else {id(message)}
    of_nodes: dict[int, Node] = {}
    # each before what it is computed of
    for node in reversed(order):
        if id(node) not in outside:
            if readers[id(node)] > 1 and has_map(node):
                found[id(node)] = node
            beside = _network_beside(node)
            if beside is not None:
                found[id(beside)] = beside
            end = _end_within(node)
            if end is not None:
                of_nodes[id(node)] = end
        elif _is_end(node):
            found[id(node)] = node
        else:
            outside |= {id(parent) for parent in node.parents()}
    if not found and not of_nodes:
        raise Refused('no networks whose values could be kept')
    return taken_apart(message, found.values(), order, of_nodes)


def wordless_apart(message: Node) -> Apart:
    """Takes values out of a message that are computed, number by number, by operators that programs have no words for.

    Args:
        message: The message, on edges.

    Raises:
        Refused: If there are none.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_j, time = leaf('x_j', 'source', (4,), torch.float32), leaf('t', 'edge', (4,), torch.float32)
        >>> [node.op for node in wordless_apart(value('mul', x_j, value('cos', time))).kept]
        ['cos']
    """
    order = computed_on_edges(message)
    found: dict[int, Node] = {}
    outside = {id(message)}
    # each before what it is computed of
    for node in reversed(order):
        if id(node) in outside and _is_wordless(node):
            found[id(node)] = node
        elif id(node) in outside:
            outside |= {id(parent) for parent in node.parents()}
    if not found:
        raise Refused('no values without words')
    return taken_apart(message, found.values(), order)


def _is_wordless(node: Node) -> bool:
    is_said = node.op in WORDS or node.op in ('where', 'masked_fill', 'indicator')
    return OPERATIONS[node.op].elementwise and may_be_kept(node) and not is_said


def taken_together_kept(output: Node, keeps_wide: bool = True) -> Node:
    """The results of a layer, whose operators on rows of several edges read from memory what they take.

    These are products by matrices of types, which multiply the rows of a type together, softmaxes of sources, rows of
    other edges, and layers.

    Args:
        output: The results.
        keeps_wide: Whether values may be kept that are as wide as messages: of the latter any are.

    Raises:
        Refused: If what is read must be in memory, and cannot be.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_i, x_j = (leaf('x', side, (4,), torch.float32) for side in ('target', 'source'))
        >>> found = taken_together_kept(value('softmax_of_sources', value('mul', x_i, x_j)))
        >>> [node.op for node in found.parents()]
        ['kept']
    """
    order = all_in_order(output)
    takers = [node for node in order if keeps_wide or node.op != 'typed_map']
    computed = []
    for taker in takers:
        read = list(computed_for(taker))
        if taker.op in _NEVER_APART and not all(map(may_be_kept, read)):
            raise Refused(f'{taker.op} of what a softmax or a normalisation over edges gives')
        computed += filter(may_be_kept, read)
    return with_kept(output, computed, order).message if computed else output


def computed_for(node: Node) -> Iterator[Node]:
    """The values of edges that have to be in memory for an operator on rows of several edges, and are not."""
    read = node.args if node.op == 'layer' else node.args[:1] if node.op in _TOGETHER else ()
    return (part for part in read if part.residency == EDGE and not _is_there(part))


def kept_in(output: Node) -> list[Node]:
    """The values of edges that are computed for memory, but for those that the layer returns."""
    known = {id(node) for node in results_of(output)}
    found = {id(node.attributes['of']): node.attributes['of'] for node in all_in_order(output) if node.op == 'kept'}
    # what is detached of values in memory is there
    return [node for key, node in found.items() if key not in known and not is_brought(node)]


def all_in_order(output: Node) -> list[Node]:
    """All values that a layer's results need, those included that what is in memory is computed of.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> score = value('exp', leaf('e', 'edge', (4,), torch.float32))
        >>> [node.op for node in all_in_order(value('neg', in_memory(score)))]
        ['input', 'exp', 'kept', 'neg']
    """
    found: dict[int, Node] = {}
    stack = [(output, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            found[id(node)] = node
        elif id(node) not in found:
            read = (node.attributes['of'],) if node.op == 'kept' else node.parents()
            stack += [(node, True), *((parent, False) for parent in read if id(parent) not in found)]
    return list(found.values())


def shared_networks_kept(output: Node) -> Node:
    """The results of a layer, whose reductions read from memory what networks give to several of them.

    Args:
        output: The results.

    Raises:
        Refused: If no value of a network is computed for several reductions or values of edges.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_j, weight = leaf('x_j', 'source', (4,), torch.float32), leaf('weight', 'shared', (4, 4), torch.float32)
        >>> e = leaf('e', 'edge', (4,), torch.float32)
        >>> message = value('relu', value('linear', value('mul', x_j, e), weight))
        >>> total, highest = (value('reduce', message, reduce=how) for how in ('sum', 'max'))
        >>> [node.op for node in in_order(shared_networks_kept(value('add', total, highest)))]
        ['kept', 'reduce', 'reduce', 'add']
    """
    reductions = [node.args[0] for node in in_order(output) if node.op == 'reduce']
    roots = [*reductions, *(node for node in results_of(output) if node.residency == EDGE)]
    orders = [computed_on_edges(root) for root in roots]
    counts = collections.Counter(id(node) for order in orders for node in order)
    shared = [n for n in in_order(output) if counts[id(n)] > 1 and has_map(n) and n.dtype in DTYPES]
    # what only another one is computed of is not read
    known = {id(node) for node in shared}
    within = {id(parent) for node in shared for parent in node.parents()}
    outside = {id(p) for order in orders for n in order if id(n) not in known for p in n.parents()}
    last = [n for n in shared if id(n) not in within or id(n) in outside or any(n is root for root in roots)]
    if not last:
        raise Refused('no network whose values several reductions read')
    return with_kept(output, last, all_in_order(output)).message


def taken_apart(
    message: Node, kept: Collection[Node], order: Iterable[Node], of_nodes: Mapping[int, Node] | None = None
) -> Apart:
    """A message that reads some of the values that it is computed of from memory; each of its values is drawn once.

    Raises:
        Refused: If values are dropped that several forms would drop, each by other numbers.
    """
    apart = with_kept(message, kept, order, of_nodes)
    check_drawn_once((apart.message, *apart.kept), 'values are computed of')
    return apart


def with_kept(
    output: Node, kept: Collection[Node], order: Iterable[Node], of_nodes: Mapping[int, Node] | None = None
) -> Apart:
    """A value that reads some of those that it is computed of from memory.

    Args:
        output: The value.
        kept: Those that are in memory.
        order: What is computed of them, each after what it is computed of; all else stays as it is, reductions within a
            message, which have forms of their own.
        of_nodes: By what reads them, values of nodes that are in memory for each edge.
    """
    ids, of_nodes = {id(node) for node in kept}, of_nodes or {}
    found: dict[int, Node] = {}
    found_kept = []
    rows = {id(end): value('on_edges', end) for end in of_nodes.values()}
    in_rows = {key: in_memory(node) for key, node in rows.items()}
    values: dict[int, Node] = {}
    for node in order:
        # others read the same as a value of nodes
        known = {**found, **in_rows} if id(node) in of_nodes else found
        made = with_args(node, lambda parent, known=known: known.get(id(parent), parent))
        if node.op == 'kept':
            of = node.attributes['of']
            made = node if values.get(id(of), of) is of else in_memory(values[id(of)])
        values[id(node)] = made
        if id(node) in ids:
            found_kept.append(made)
            made = in_memory(made)
        found[id(node)] = made
    return Apart(found[id(output)], (*rows.values(), *found_kept))


def _topmost(message: Node, share: int) -> list[Node]:
    """The values that are kept, none of which another one is computed of."""
    widest = {id(message): message.width}
    found: dict[int, Node] = {}
    # each before what it is computed of
    for node in reversed(computed_on_edges(message)):
        above = widest.get(id(node))
        if above is None or is_leaf(node):
            continue
        if share * node.width <= above and may_be_kept(node):
            found[id(node)] = node
            continue
        for parent in node.parents():
            widest[id(parent)] = max(above, node.width, widest.get(id(parent), 0))
    return list(found.values())


def _is_there(node: Node) -> bool:
    return is_seen(node) and not any(inner.op == 'on_edges' for inner in in_order(node))


def may_be_kept(node: Node) -> bool:
    return node.dtype in DTYPES and not any(inner.op in OF_ALL_EDGES for inner in computed_on_edges(node))


def _check_mapped_once(message: Node, kept: Sequence[Node]) -> None:
    known = {id(node) for node in kept}
    parts = [computed_on_edges(node) for node in kept]
    parts.append(computed_on_edges(message, without=known))
    counts = collections.Counter(id(node) for part in parts for node in part if node.op in _MAPS)
    if any(count > 1 for count in counts.values()):
        raise Refused('a linear map of values of edges that several values are computed of')


def is_map(node: Node) -> bool:
    """Whether a value is a linear map of what edges compute."""
    return node.op == 'linear' and node.residency == EDGE and not is_leaf(node)


def _network_beside(node: Node) -> Node | None:
    """Of two values of networks that are combined the narrower one, which the network of the other reads."""
    if node.op not in ('add', 'sub', 'mul'):
        return None
    both = [x for x in node.args if isinstance(x, Node) and x.residency == EDGE and has_map(x)]
    return min(reversed(both), key=lambda x: x.width) if len(both) == 2 else None


def _end_within(node: Node) -> Node | None:
    """Values of sources or targets that are combined with those of a network that goes on, where no stage is so."""
    if node.op not in ('add', 'mul') or not all(isinstance(x, Node) and x.shape == node.shape for x in node.args):
        return None
    ends = [x for x in node.args if x.residency == TARGET or (x.residency == SOURCE and node.op == 'add')]
    is_within = len(ends) == 1 and any(x.residency == EDGE and has_map(x) for x in node.args)
    return ends[0] if is_within else None


def has_map(node: Node) -> bool:
    """Whether a linear map is taken on edges for a value."""
    return any(map(is_map, computed_on_edges(node)))


def _is_end(node: Node) -> bool:
    """Whether a value is a linear map's, with a bias and activations behind it perhaps."""
    if node.op in ACTIVATIONS:
        return _is_end(node.args[0])
    if node.op == 'add':
        x, bias = node.args
        return isinstance(x, Node) and isinstance(bias, Node) and bias.residency == SHARED and _is_end(x)
    return is_map(node)
