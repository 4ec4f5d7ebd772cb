"""Equal values are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pygfuse.compiler.ir.values import Node, in_order, mapped, nodes_in, value


def share_subexpressions(output: Node) -> Node:
    """Replaces equal values by one; values drawn at random are not equal.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf
        >>> x = leaf('x_j', 'source', (4,), torch.float32)
        >>> len(in_order(share_subexpressions(value('add', value('relu', x), value('relu', x)))))
        3
    """
    return shared([output])[0]


def shared(outputs: Sequence[Node]) -> list[Node]:
    """The same of several values together: what is equal in two of them is one value in both.

    Args:
        outputs: The values; any number, also of other shapes.

    Returns:
        As many values, equal to these in turn.
    """
    known: dict[Any, Node] = {}
    found: dict[int, Node] = {}
    for node in (node for output in outputs for node in in_order(output)):
        if id(node) in found:
            continue
        args = mapped(node.args, lambda parent: found[id(parent)])
        key = _key(node, args)
        if key not in known:
            same = all(a is b for a, b in zip(nodes_in(args), node.parents(), strict=True))
            known[key] = node if same else value(node.op, *args, **node.attributes)
        found[id(node)] = known[key]
    return [found[id(output)] for output in outputs]


def _key(node: Node, args: tuple) -> Any:
    is_unsaid = node.op == 'input' and node.attributes['source'] is None
    if is_unsaid or node.op in ('dropout', 'dropout_draws', 'dropout_of_nodes', 'layer'):
        return id(node)
    if node.op == 'input':
        source = node.attributes['source']
        place = (id(source[0]), source[1]) if isinstance(source, tuple) else source
        return node.op, place, node.residency
    attributes = tuple((name, _hashable(item)) for name, item in node.attributes.items())
    # what is filled has nothing but its shape
    return node.op, _arguments(args), attributes, node.dtype, node.residency, node.shape


def _arguments(args: Any) -> Any:
    if isinstance(args, Node):
        return 'value', id(args)
    if isinstance(args, tuple):
        return tuple(_arguments(argument) for argument in args)
    return _hashable(args)


def _hashable(item: Any) -> Any:
    if isinstance(item, slice):
        return 'slice', item.start, item.stop, item.step
    return tuple(_hashable(part) for part in item) if isinstance(item, (tuple, list)) else (type(item), item)
