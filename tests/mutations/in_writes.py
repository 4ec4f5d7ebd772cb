"""What is broken in what is known of memory: writes, views, and values that are not there."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

VIEWS = 'tests/conv/modules/test_writes_through_views.py'

OF_WRITES = (
    Mutation(
        'results of no rows that were written to through views',
        'compiler/capture/layers.py',
        '    if isinstance(out, Symbol):\n        check_current([out])\n',
        '    if isinstance(out, Symbol) and out.node.residency != SHARED:\n        check_current([out])\n',
        VIEWS,
    ),
    Mutation(
        'views of so many nodes',
        'compiler/functions/of_nodes.py',
        'given = function.of_count(given) if isinstance(function, OfSoMany) else given',
        'pass',
        VIEWS,
    ),
    Mutation(
        'powers in place',
        'compiler/symbols/operators.py',
        "if name != 'matmul'}",
        "if name not in ('matmul', 'pow')}",
        VIEWS,
    ),
    Mutation(
        'lists as the places of one dimension',
        'compiler/symbols/keys.py',
        '    return (key,)\n',
        '    return key\n',
        'tests/compiler/test_indices.py',
    ),
    Mutation(
        'nodes behind a transposition that are chosen',
        'compiler/functions/turned_values.py',
        'return recorded(torch.movedim, (one, 0, place)) if one.rows is None else as_turned(one, place)',
        'return as_turned(one, place)',
        'tests/compiler/test_indices.py',
    ),
    Mutation(
        'copies of what is given',
        'compiler/plan/copies.py',
        "is_given = node.op == 'input' and own.op != 'input'",
        'is_given = False',
        VIEWS,
    ),
    Mutation(
        'copies of other results',
        'compiler/plan/copies.py',
        'node is other and own is not of_other',
        'False',
        VIEWS,
    ),
    Mutation(
        'as many pieces as there are nodes',
        'compiler/functions/of_nodes.py',
        ' or len(few) > _MOST_PIECES',
        '',
        'tests/conv/modules/test_of_all_nodes.py -k for_each_node',
    ),
    Mutation(
        'what is detached of values in memory',
        'compiler/forms/forms_of_results.py',
        ' and not is_brought(kept)',
        '',
        'tests/compiler/test_detached.py -k in_memory',
    ),
    Mutation(
        'values of edges that are a view',
        'ops/values_along_edges.py',
        'given, (len(tensors),))[-1].data',
        'given, (len(tensors),))[-1]',
        'tests/conv/test_written_results.py -k values_of_edges',
    ),
    Mutation(
        'edges that a transform makes',
        'conv/_compiled/prepared_edges.py',
        'if not is_plain or is_intercepted() or not all(',
        'if not is_plain or torch.compiler.is_compiling() or not all(',
        'tests/conv/compiled/test_prepared_edges.py -k spoils',
    ),
    Mutation(
        'gradients that torch keeps no memory for',
        'ops/within_torch/lazy_values.py',
        '        return tensor.clone()\n',
        '        return tensor\n',
        'tests/ops/within_torch/test_lazy_values.py',
    ),
    Mutation(
        'gradients that are yet to be negated',
        'ops/within_torch/lazy_values.py',
        'return tensor.resolve_neg() if tensor.is_neg() else tensor',
        'return tensor',
        'tests/ops/within_torch/test_lazy_values.py',
    ),
    Mutation(
        'a tensor beside None',
        'compiler/symbols/operators.py',
        '_NO_NUMBERS = type(None), str',
        '_NO_NUMBERS = str',
        'tests/compiler/test_absent_and_added.py -k none',
    ),
    Mutation(
        'a MetaLayer within a module',
        'conv/meta_layer.py',
        'is_captured_whole: ClassVar[bool] = True',
        'is_captured_whole: ClassVar[bool] = False',
        'tests/conv/test_meta_layer.py -k whole',
    ),
)
