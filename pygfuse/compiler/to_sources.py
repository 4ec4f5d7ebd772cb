"""Reductions to the sources of edges: along edges that lead the other way, of messages whose ends change places."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection

from pygfuse.compiler.ir import (
    SOURCE,
    TARGET,
    Node,
    computed_on_edges,
    in_order,
    kept,
    value,
    with_args,
)
from pygfuse.compiler.kept import SHARES, Apart, narrow_values_apart, networks_apart, wordless_apart
from pygfuse.compiler.lowering import lowered
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.returned import with_returned

_OTHER = {SOURCE: TARGET, TARGET: SOURCE}


def reduced_by_walks(output: Node) -> Node:
    """The results of a layer whose reductions to sources are reductions along edges that lead the other way.

    Such edges are walked for programs alone: what has none is in memory, computed along the edges as they are.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir import leaf
        >>> x = leaf('x', TARGET, (4,), torch.float32)
        >>> found = reduced_by_walks(value('reduce_to_sources', value('of_targets', x), reduce='sum'))
        >>> found.op, found.attributes, found.args[0].residency
        ('reduce', {'reduce': 'sum', 'leads_back': True}, 'source')
    """
    messages = [node.args[0] for node in in_order(output) if node.op == 'reduce_to_sources']
    if not messages:
        return output
    in_memory = {id(node) for message in messages for node in _in_memory(message)}
    found: dict[int, Node] = {}
    for node in in_order(output):
        made = with_args(node, lambda parent: found[id(parent)])
        if node.op == 'reduce_to_sources':
            made = value('reduce', _with_other_ends(made.args[0]), **node.attributes, leads_back=True)
        # others read there, too, what is in memory for these
        found[id(node)] = kept(made) if id(node) in in_memory else made
    return with_returned(found[id(output)])


def _with_other_ends(message: Node) -> Node:
    """A message, whose sources are targets and whose targets are sources."""
    found: dict[int, Node] = {}

    def other(node: Node) -> Node:
        if node.residency in _OTHER:
            return found.setdefault(id(node), dataclasses.replace(node, residency=_OTHER[node.residency]))
        return found.get(id(node), node)

    for node in computed_on_edges(message):
        found[id(node)] = with_args(node, other)
    return other(message)


def _in_memory(message: Node) -> Collection[Node]:
    """The values of edges that have to be in memory so that there is a program for the rest of a message."""
    attempts = [
        lambda: Apart(message, ()),
        *(functools.partial(narrow_values_apart, message, share) for share in SHARES),
        lambda: networks_apart(message),
        lambda: wordless_apart(message),
    ]
    known = {id(node) for node in computed_on_edges(message)}
    for attempt in attempts:
        with contextlib.suppress(Refused):
            apart = attempt()
            lowered(value('reduce', _with_other_ends(apart.message), reduce='sum'))
            if all(id(node) in known for node in apart.kept):
                return apart.kept
    return [message]
