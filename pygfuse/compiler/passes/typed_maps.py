"""Sources that are mapped by a matrix of each edge's type are mapped once for each pair of a type and a source.

Then edges lead from these pairs, and a mapped source is one of them: what the message computes has the forms that it
would have without types. There are at most as many pairs as edges, and far fewer where edges share sources and types.
Where other walks need the edges as they are, each edge has the row of its pair in memory.
"""

from __future__ import annotations

from pygfuse.compiler.ir.values import SOURCE, Node, in_order, mapped, nodes_in, rewritten, value


def typed_maps_of_pairs(output: Node) -> Node:
    """Products of sources by the matrices of types, ``typed_map``, as values of pairs; other sources have a row a pair.

    Where sources are mapped by several types of an edge, or have degrees, they are `beside_others`.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import EDGE, SHARED, leaf
        >>> x, table = leaf('x_j', SOURCE, (4,), torch.float32), leaf('weight', SHARED, (5, 4, 2), torch.float32)
        >>> found = value('typed_map', x, table, leaf('edge_type', EDGE, (), torch.int64))
        >>> typed_maps_of_pairs(value('relu', found)).residency
        'source'
    """
    order = in_order(output)
    maps = [node for node in order if _may_be_of_pairs(node)]
    if all(node.args[0].residency != SOURCE for node in maps):
        return output
    (numbers, count), *others = {(n.args[2], n.args[1].shape[0]) for n in maps if n.args[0].residency == SOURCE}
    if others or any(map(_has_degrees, order)):
        return beside_others(output)
    found: dict[int, Node] = {}
    of_pairs: set[int] = set()

    def with_row_a_pair(node: Node) -> Node:
        made = found[id(node)]
        if made.residency != SOURCE or id(made) in of_pairs:
            return made
        return value('of_pairs', made, numbers, count=count)

    for node in order:
        made = node
        if _may_be_of_pairs(node) and found[id(node.args[0])].residency == SOURCE:
            args = [found[id(part)] for part in node.args]
            made = value('typed_product', *args, is_of_pairs=id(args[0]) in of_pairs)
        elif node.residency != SOURCE or any(id(found[id(part)]) in of_pairs for part in node.parents()):
            args = mapped(node.args, with_row_a_pair)
            is_same = all(a is b for a, b in zip(nodes_in(args), node.parents(), strict=True))
            made = node if is_same else value(node.op, *args, **node.attributes)
        if made is not node and made.residency == SOURCE:
            of_pairs.add(id(made))
        found[id(node)] = made
    return found[id(output)]


def beside_others(output: Node) -> Node:
    """Results whose products by the matrices of types are values of edges in memory: no edge leads from a pair."""

    def in_memory(node: Node) -> Node | None:
        return value(node.op, *node.args, **node.attributes, is_beside_others=True) if _may_be_of_pairs(node) else None

    return rewritten(output, in_memory)


def _may_be_of_pairs(node: Node) -> bool:
    return node.op == 'typed_map' and 'is_beside_others' not in node.attributes


def _has_degrees(node: Node) -> bool:
    return node.op == 'degree' and (node.residency == SOURCE or 'side' in node.attributes)
