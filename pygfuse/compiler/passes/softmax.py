"""A softmax over the edges of each target, taken apart into a maximum, a sum of exponentials and a quotient."""

from __future__ import annotations

from collections.abc import Collection

from pygfuse.compiler.ir.values import EDGE, Node, in_order, kept, mapped, nodes_in, value


def softmax_taken_apart(output: Node, chosen: Collection[Node] | None = None) -> Node:
    """Replaces softmaxes by reductions: what is no weight of edges in a program's sense is then a value like others.

    Args:
        output: The value.
        chosen: The softmaxes; by default all.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import in_order, leaf
        >>> score = leaf('a_j', 'source', (1,), torch.float32)
        >>> out = softmax_taken_apart(value('reduce', value('softmax', score), reduce='sum'))
        >>> [node.attributes['reduce'] for node in in_order(out) if node.op == 'reduce']
        ['max', 'sum', 'sum']
    """
    ids = None if chosen is None else {id(node) for node in chosen}
    found: dict[int, Node] = {}
    for node in in_order(output):
        args = mapped(node.args, lambda parent: found[id(parent)])
        is_same = all(a is b for a, b in zip(nodes_in(args), node.parents(), strict=True))
        if node.op == 'softmax' and (ids is None or id(node) in ids):
            found[id(node)] = _apart(*args)
        else:
            if node.op == 'softmax_of_sources' and args[0].residency != EDGE:
                # what was computed of edges may be of nodes now
                args, is_same = (kept(value('on_edges', args[0])),), False
            found[id(node)] = node if is_same else value(node.op, *args, **node.attributes)
    return found[id(output)]


def _apart(score: Node) -> Node:
    # its gradient is zero: a softmax does not change where all scores change alike
    highest = value('detach', value('reduce', score, reduce='max'))
    above = value('sub', score, highest)
    if above.residency != EDGE:
        # targets without edges are computed, too: of what is infinite there, a gradient of 0 would become NaN
        above = value('clamp', above, None, 1.0)
    grown = value('exp', above)
    # PyG's way; a bound of 1 would have no gradient where a sum is below it by rounding
    total = value('add', value('reduce', grown, reduce='sum'), 1e-16)
    return value('div', grown, total)
