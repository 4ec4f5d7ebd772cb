"""What a layer returns or stores of its edges: it is in memory, and what is computed of it reads it there."""

from __future__ import annotations

import dataclasses

from pygfuse.compiler.forms.kept import all_in_order, may_be_kept, with_kept
from pygfuse.compiler.forms.lowering import softmaxes_in
from pygfuse.compiler.ir.values import (
    Node,
    computed_on_edges,
    in_order,
    is_brought,
    returned_of_edges,
    value,
    with_args,
    with_rows_of_edges,
)
from pygfuse.compiler.passes.softmax import softmax_taken_apart
from pygfuse.compiler.passes.subexpressions import share_subexpressions


def without_softmax_in_returned(output: Node) -> Node:
    """The results of a layer, whose softmaxes are taken apart where they are part of values of edges that it returns.

    Such values have no form otherwise. Scores that are sums of wider values are in memory.
    """
    output = _kept_before_softmax(_read_as_returned(output))
    found = _softmaxes_in_returned(output)
    apart = share_subexpressions(softmax_taken_apart(output, found)) if found else output
    return with_rows_of_edges(apart, output)


def _kept_before_softmax(output: Node) -> Node:
    """The results of a layer whose softmaxes read scores from memory that are sums, and these what is returned."""
    scores = [softmax.args[0] for softmax in _softmaxes_in_returned(output)]
    sums = [score for score in scores if _is_of_wider(score) and may_be_kept(score)]
    returned = [node for node in returned_of_edges(output) if not softmaxes_in(node)]
    if not sums or any(score is node for score in sums for node in returned):
        return output
    return with_returned(with_kept(output, [*returned, *sums], all_in_order(output)).message)


def with_returned(output: Node) -> Node:
    """Results, of which values of edges in memory are these values."""
    if output.op != 'results':
        return output
    return dataclasses.replace(output, args=tuple(node.attributes.get('of', node) for node in output.args))


def _softmaxes_in_returned(output: Node) -> list[Node]:
    return [softmax for node in returned_of_edges(output) for softmax in softmaxes_in(node)]


def _is_of_wider(score: Node) -> bool:
    """Whether a score is a sum of numbers of an edge."""
    return not is_brought(score) and any(node.width > score.width for node in computed_on_edges(score))


def returned_values_kept(output: Node) -> Node:
    """The results of a layer; what is computed of values of edges that it returns reads these from memory.

    Args:
        output: The results.
    """
    returned = returned_of_edges(output)
    if output.op != 'results' or not returned:
        return output
    return with_returned(with_kept(output, returned, all_in_order(output)).message)


def _read_as_returned(output: Node) -> Node:
    """The results of a layer; what is computed of a value whose numbers it returns in another shape reads these."""
    returned = returned_of_edges(output)
    views = [node for node in returned if node.op == 'reshape' and not is_brought(node.args[0])]
    of_views = {id(view.args[0]): view for view in views if not any(view.args[0] is node for node in returned)}
    found: dict[int, Node] = {}
    for node in in_order(output) if of_views else ():
        if id(node) not in found:
            made = with_args(node, lambda parent: found[id(parent)])
            view = of_views.get(id(node))
            if view is not None:
                found[id(view)] = with_args(view, lambda _, made=made: made)
                made = value('reshape', found[id(view)], shape=node.shape)
            found[id(node)] = made
    return found.get(id(output), output)
