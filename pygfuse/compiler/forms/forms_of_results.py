"""The forms of all that a layer reduces, returns and keeps of edges."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pygfuse.compiler.forms.channel_sums import shared_sums_kept
from pygfuse.compiler.forms.form import Form, forms_of, reduced_and_returned, values_of
from pygfuse.compiler.forms.kept import all_in_order, kept_in
from pygfuse.compiler.forms.lowering import lowered, softmaxes_in
from pygfuse.compiler.forms.returned import returned_values_kept, without_softmax_in_returned
from pygfuse.compiler.forms.weighed import weighed_of
from pygfuse.compiler.functions.dropouts import check_drawn_once
from pygfuse.compiler.ir.values import Node, in_order, is_brought, is_of_one, returned_of_edges
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.passes.softmax import softmax_taken_apart
from pygfuse.compiler.passes.subexpressions import share_subexpressions
from pygfuse.compiler.refusal import Refused


def forms_of_results(output: Node, keeps_wide: bool, returns_weights: bool) -> tuple[Node, dict[int, Form]]:
    """A value and the forms of its reductions and values of edges; a softmax that no program has is taken apart.

    Args:
        output: The results of a layer.
        keeps_wide: Whether values of edges may be kept that are as wide as messages.
        returns_weights: Whether one walk may give a reduction and the weights of its softmax.

    Raises:
        Refused: If something has no form.
    """
    weighed: dict[int, Form] = {}
    if returns_weights and not any('leads_back' in node.attributes for node in in_order(output)):
        with contextlib.suppress(Refused):
            weighed = weighed_of(output)
    if not weighed:
        output = shared_sums_kept(returned_values_kept(without_softmax_in_returned(output)))
    while True:
        walks = dict(weighed)
        nodes = all_in_order(output)
        messages = [node.args[0] for node in nodes if node.op == 'reduce']
        check_drawn_once((*messages, *returned_of_edges(output), *kept_in(output)), 'reductions read')
        try:
            for node in nodes:
                if node.op == 'reduce' and id(node) not in walks:
                    walks |= _forms_of_reduction(node, walks, keeps_wide)
        except Refused:
            found = softmaxes_in(node.args[0])
            apart = softmax_taken_apart(output, found)
            if not found or weighed or apart is output:
                raise
            output = share_subexpressions(apart)
        else:
            break
    if any(is_of_one(node) and not isinstance(walks[id(node)], Network) for node in nodes if id(node) in walks):
        raise Refused('a maximum whose gradient goes to one of those that tie')
    for node in (*returned_of_edges(output), *kept_in(output)):
        if id(node) not in walks:
            walks |= values_of(node, keeps_wide)
    return output, walks


def _forms_of_reduction(reduction: Node, walks: Mapping[int, Form], keeps_wide: bool) -> dict[int, Form]:
    """The forms of a reduction; one pass gives what it reduces, too, if that is returned."""
    (message,) = reduction.args
    if 'leads_back' in reduction.attributes:
        return {id(reduction): lowered(reduction)}
    kept = message.attributes['of'] if message.op == 'kept' else None
    # what is detached of values in memory is there
    if kept is not None and id(kept) not in walks and not is_brought(kept):
        with contextlib.suppress(Refused):
            return reduced_and_returned(reduction, kept, keeps_wide)
    return forms_of(reduction, keeps_wide)
