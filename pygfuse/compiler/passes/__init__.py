"""Passes over the intermediate representation: functions of a value that give an equal value, one a file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from pygfuse.compiler.ir.values import Node
from pygfuse.compiler.passes.after_sum import linear_maps_after_sums
from pygfuse.compiler.passes.contraction import contract_edge_features
from pygfuse.compiler.passes.detached import detached_first
from pygfuse.compiler.passes.drawn_dropouts import dropouts_drawn
from pygfuse.compiler.passes.no_operation import remove_no_operations
from pygfuse.compiler.passes.ones import ones_last
from pygfuse.compiler.passes.own_matrices import own_matrices_after_sums
from pygfuse.compiler.passes.permutations import permutations_last
from pygfuse.compiler.passes.reordering import reorder_broadcasts
from pygfuse.compiler.passes.shifts import shifts_after_maps
from pygfuse.compiler.passes.split_concatenation import split_concatenations
from pygfuse.compiler.passes.subexpressions import share_subexpressions
from pygfuse.compiler.passes.sums_apart import sums_taken_apart
from pygfuse.compiler.passes.tables import tables_first
from pygfuse.compiler.passes.typed_maps import typed_maps_of_pairs
from pygfuse.compiler.passes.written_softmax import softmaxes_recognised

# in the order in which they run
PASSES: dict[str, Callable[[Node], Node]] = {
    function.__name__: function
    for function in (
        remove_no_operations,
        permutations_last,
        typed_maps_of_pairs,
        own_matrices_after_sums,
        split_concatenations,
        softmaxes_recognised,
        reorder_broadcasts,
        tables_first,
        contract_edge_features,
        shifts_after_maps,
        linear_maps_after_sums,
        share_subexpressions,
    )
}


# for what has no program: of the first and the third a network is left then, of the others a program
MORE_PASSES: dict[str, Callable[[Node], Node]] = {
    function.__name__: function for function in (sums_taken_apart, detached_first, ones_last, dropouts_drawn)
}


def optimised(output: Node, without: Collection[str] = (), more: Collection[str] = ()) -> Node:
    """A value after all passes but those named in `without`, and of `MORE_PASSES` those named in `more`."""
    last = output
    for _, last in stages(output, without, more):  # noqa: B007
        pass
    return last


def stages(output: Node, without: Collection[str] = (), more: Collection[str] = ()) -> Iterator[tuple[str, Node]]:
    """The name of each pass and the value after it; arguments as of `optimised`."""
    passes = [*PASSES.items()]
    for name in more:
        # maps that it leaves last are taken after sums, too
        passes += [(name, MORE_PASSES[name]), *passes[-2:]]
    for name, run in passes:
        if name not in without:
            output = run(output)
            yield name, output
