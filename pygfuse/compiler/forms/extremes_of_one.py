"""Maxima and minima whose gradient goes to the first of the edges that tie, as those of `torch_scatter` do.

PyG's, and so the walks', divide it among them. Here the first edge that has the extreme is found by a second walk, and
a third adds up its message alone: what is differentiated is a sum, and no kernel knows of another kind of maximum.
"""

from __future__ import annotations

import contextlib
import functools
import math

import torch

from pygfuse.compiler.forms.lowering import lowered
from pygfuse.compiler.ir.values import EDGE, Node, is_of_one, kept, rewritten, set_of_edges, value
from pygfuse.compiler.networks.reading import network_of
from pygfuse.compiler.refusal import Refused

# what a plan is without that is for no gradients
GRADIENTS_OF_ONE = 'gradients of extremes of one edge'
# greater than any number of an edge
_NO_EDGE = 1e30


def extremes_as_sums(output: Node, with_gradients: bool = True) -> Node:
    """Replaces extremes of one edge by sums of the messages that have them, but for maxima of networks.

    A message that is no program is kept in memory: computed twice by operators of torch, and once by a walk, it would
    not equal itself in its last digits.

    Args:
        output: The value.
        with_gradients: Whether it may be differentiated; else the extreme itself is the result.

    Raises:
        Refused: If numbers of edges are not exact in the type of messages.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf
        >>> x = leaf('x_j', 'source', (4,), torch.float32)
        >>> out = extremes_as_sums(value('reduce', x, reduce='max', of_one=True))
        >>> [node.attributes['reduce'] for node in in_order(out) if node.op == 'reduce']
        ['max', 'min', 'sum']
    """
    return rewritten(output, functools.partial(_rule, with_gradients))


def _rule(with_gradients: bool, node: Node) -> Node | None:
    if not is_of_one(node) or _is_maximum_of_network(node):
        return None
    (message,) = node.args
    if message.dtype not in (torch.float32, torch.float64):
        raise Refused(f'a maximum of torch_scatter in {message.dtype}')
    found = _parts(node, message)
    if with_gradients and not all(map(_has_program, found)):
        found = _parts(node, kept(message))
    extreme, _, total = found if with_gradients else (found[0], None, found[0])
    is_lowest = node.attributes['reduce'] == 'min'
    # torch_scatter leaves 0 where nothing exceeds the least number, and a NaN is to be seen
    signed = value('neg', extreme) if is_lowest else extreme
    some = value('gt', signed, -math.inf)
    return value('where', some, total, value('detach', value('relu', signed)))


def _parts(node: Node, message: Node) -> tuple[Node, Node, Node]:
    """The extreme of messages, the number of the first edge that has it, and that edge's message."""
    attributes = {name: given for name, given in node.attributes.items() if name not in ('reduce', 'of_one')}
    number, leads_back = set_of_edges(message), node.op == 'reduce_to_sources'
    edges = {**({'edges': number} if number else {}), **({'leads_back': True} if leads_back else {})}
    numbers = Node('numbers_of_edges', (), edges, EDGE, (1,) * len(message.shape), message.dtype)

    def reduced(one: Node, reduce: str) -> Node:
        return value(node.op, one, reduce=reduce, **attributes)

    def at_edges(one: Node) -> Node:
        return value('as_sources', one) if leads_back else one

    extreme = value('detach', reduced(message, node.attributes['reduce']))
    named = value('where', value('eq', message, at_edges(extreme)), numbers, _NO_EDGE)
    first = value('detach', reduced(named, 'min'))
    alone = value('where', value('eq', numbers, at_edges(first)), message, 0.0)
    return extreme, first, reduced(alone, 'sum')


def _has_program(found: Node) -> bool:
    reduction = found.args[0] if found.op == 'detach' else found
    with contextlib.suppress(Refused):
        lowered(reduction)
        return True
    return False


def _is_maximum_of_network(node: Node) -> bool:
    """Whether kernels of networks give it, which keep the place of the first edge that has the maximum."""
    if node.attributes['reduce'] != 'max' or node.op != 'reduce' or _has_program(node):
        return False
    with contextlib.suppress(Refused):
        network_of(node.args[0], node)
        return True
    return False
