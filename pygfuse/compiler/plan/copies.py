"""Results that are copies in the code that was captured: passes find what they are copies of."""

from __future__ import annotations

from collections.abc import Sequence

from pygfuse.compiler.ir.values import Node

# what may have the memory of its first argument
_MAY_BE_VIEWS = (
    'reshape', 'expand', 'permute', 'index', 'detach', 'columns', 'parameter_columns', 'on_edges', 'of_sources',
    'of_targets', 'as_sources', 'as_targets', 'as_nodes', 'resized', 'of_nodes', 'over_nodes', 'call',
)  # fmt: skip


def copies_among(results: Sequence[Node], before: Sequence[Node]) -> tuple[int, ...]:
    """The places of results that would have the memory of what the layer is given, or of an earlier one, where those
    of its own code have not.

    Args:
        results: The results of a plan.
        before: The same as they were captured.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x = leaf('x', 'target', (4,), torch.float32)
        >>> y = value('relu', x)
        >>> copies_among((y, y, x), (y, value('add', y, 0), value('add', x, 0)))
        (1, 2)
    """
    found, memory = [], [(_memory_of(node), _memory_of(own)) for node, own in zip(results, before, strict=True)]
    for place, (node, own) in enumerate(memory):
        is_given = node.op == 'input' and own.op != 'input'
        if is_given or any(node is other and own is not of_other for other, of_other in memory[:place]):
            found.append(place)
    return tuple(found)


def _memory_of(node: Node) -> Node:
    """The value whose memory another may have."""
    while node.op == 'kept' or (node.op in _MAY_BE_VIEWS and isinstance(node.args[0], Node)):
        node = node.attributes['of'] if node.op == 'kept' else node.args[0]
    return node
