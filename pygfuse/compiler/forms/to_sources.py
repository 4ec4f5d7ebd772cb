"""Reductions to the sources of edges: along edges that lead the other way, of messages whose ends change places."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping

import torch

from pygfuse.compiler.forms.kept import SHARES, Apart, all_in_order, narrow_values_apart, networks_apart, wordless_apart
from pygfuse.compiler.forms.lowering import lowered, softmaxes_in
from pygfuse.compiler.forms.returned import with_returned
from pygfuse.compiler.ir.values import (
    EDGE,
    SOURCE,
    TARGET,
    Node,
    computed_on_edges,
    kept,
    leaf,
    value,
    with_args,
)
from pygfuse.compiler.passes.softmax import softmax_taken_apart
from pygfuse.compiler.passes.subexpressions import share_subexpressions
from pygfuse.compiler.refusal import Refused

_OTHER = {SOURCE: TARGET, TARGET: SOURCE}


def reduced_by_walks(output: Node) -> Node:
    """The results of a layer whose reductions to sources are reductions along edges that lead the other way.

    Such edges are walked for programs alone: what has none is in memory, computed along the edges as they are.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> x = leaf('x', TARGET, (4,), torch.float32)
        >>> found = reduced_by_walks(value('reduce_to_sources', value('of_targets', x), reduce='sum'))
        >>> found.op, found.attributes, found.args[0].residency
        ('reduce', {'reduce': 'sum', 'leads_back': True}, 'source')
    """
    if not any(node.op == 'reduce_to_sources' for node in all_in_order(output)):
        return output
    output = _without_softmax(output)
    messages = [node.args[0] for node in all_in_order(output) if node.op == 'reduce_to_sources']
    in_memory = {id(node) for message in messages for node in _in_memory(message)}
    found: dict[int, Node] = {}
    for node in all_in_order(output):
        made = _of_found(node, found)
        if node.op == 'reduce_to_sources':
            (message,) = made.args
            if message.residency == SOURCE:
                # what each source adds up of its own has a row for each edge
                message = kept(value('on_edges', message))
            else:
                message = _with_other_ends(message, _gathered)
            made = value('reduce', message, **node.attributes, leads_back=True)
        # others read there, too, what is in memory for these
        found[id(node)] = kept(made) if id(node) in in_memory else made
    return with_returned(found[id(output)])


def _without_softmax(output: Node) -> Node:
    """The results, of which no message to sources has a softmax: it is one of the edges into a target all the same."""
    found: dict[int, Node] = {}
    for node in all_in_order(output):
        made = _of_found(node, found)
        if node.op == 'reduce_to_sources':
            apart = functools.partial(softmax_taken_apart, chosen=softmaxes_in(made.args[0]))
            made = with_args(made, apart)
        found[id(node)] = made
    return output if found[id(output)] is output else share_subexpressions(found[id(output)])


def _of_found(node: Node, found: Mapping[int, Node]) -> Node:
    """The same operator on what was found for what it takes; of what is in memory, that in memory."""
    if node.op != 'kept':
        return with_args(node, lambda parent: found[id(parent)])
    of = found[id(node.attributes['of'])]
    if of is node.attributes['of']:
        return node
    return of if of.op == 'kept' else kept(of)


def _with_other_ends(message: Node, at: Callable[[Node, str], Node]) -> Node:
    """A message, whose sources are targets and whose targets are sources.

    Args:
        message: The message.
        at: Gives a value of nodes as one of an end of the edges.
    """
    found: dict[int, Node] = {}

    def other(node: Node) -> Node:
        if node.residency not in _OTHER:
            return found.get(id(node), node)
        if id(node) not in found:
            # truth values are no operands: a program compares
            moved = with_args(node, other) if node.dtype is torch.bool else at(node, _OTHER[node.residency])
            found[id(node)] = dataclasses.replace(moved, residency=_OTHER[node.residency])
        return found[id(node)]

    for node in computed_on_edges(message):
        found[id(node)] = with_args(node, other)
    return other(message)


def _gathered(node: Node, end: str) -> Node:
    return value(f'as_{end}s', node)


def _given(node: Node, end: str) -> Node:
    return leaf('x', end, node.shape, node.dtype)


def _in_memory(message: Node) -> Collection[Node]:
    """The values of edges that have to be in memory so that there is a program for the rest of a message."""
    if message.residency != EDGE:
        return ()
    attempts = [
        lambda: Apart(message, ()),
        *(functools.partial(narrow_values_apart, message, share) for share in SHARES),
        lambda: networks_apart(message),
        lambda: wordless_apart(message),
    ]
    order = computed_on_edges(message)
    if any(node.op == 'dropout' for node in order):
        # both ends are given what is left of the same numbers
        return [message]
    known = {id(node) for node in order}
    for attempt in attempts:
        with contextlib.suppress(Refused):
            apart = attempt()
            # whatever nodes are computed of
            lowered(value('reduce', _with_other_ends(apart.message, _given), reduce='sum'))
            if all(id(node) in known for node in apart.kept):
                return apart.kept
    return [message]
