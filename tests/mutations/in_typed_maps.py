"""What is broken in messages that multiply by a matrix of each edge's type."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_LAYERS = 'tests/compiler/functions/test_typed_maps.py'

OF_TYPED_MAPS = (
    Mutation(
        'other sources than those that are mapped by types',
        'compiler/passes/typed_maps.py',
        'if made.residency != SOURCE or id(made) in of_pairs:',
        'if True:',
        f'{_LAYERS} -k "pyg_s and equation"',
    ),
    Mutation(
        'what is mapped by types once more',
        'compiler/passes/typed_maps.py',
        'is_of_pairs=id(args[0]) in of_pairs',
        'is_of_pairs=False',
        f'{_LAYERS} -k "pyg_s and twice"',
    ),
    Mutation(
        'sources by two types',
        'compiler/passes/typed_maps.py',
        'if others or any(map(_has_degrees, order))',
        'if any(map(_has_degrees, order))',
        f'{_LAYERS} -k no_pairs_serve',
    ),
    Mutation(
        'degrees of sources that are mapped by types',
        'compiler/passes/typed_maps.py',
        'if others or any(map(_has_degrees, order))',
        'if others',
        f'{_LAYERS} -k no_pairs_serve',
    ),
    Mutation(
        'modules that walk along edges as they are',
        'compiler/modules/captured_module.py',
        "if not is_one_walk and any(node.op == 'typed_map'",
        "if False and any(node.op == 'typed_map'",
        'tests/conv/modules/test_matrices_of_types.py -k any',
    ),
    Mutation(
        'the ends that are mapped on edges',
        'compiler/plan/by_type.py',
        'relations.targets if residency == TARGET else relations.sources',
        'relations.targets',
        'tests/conv/modules/test_matrices_of_types.py -k any',
    ),
    Mutation(
        'degrees of sources that are pairs',
        'compiler/passes/typed_maps.py',
        "return node.op == 'degree' and",
        'return False and',
        f'{_LAYERS} -k refused',
    ),
    Mutation(
        'matrices that are turned',
        'compiler/functions/typed_maps.py',
        "'boi' if blocks else 'oi'",
        "'bio' if blocks else 'io'",
        f'{_LAYERS} -k "pyg_s and columns"',
    ),
    Mutation(
        'computed values that types map',
        'compiler/plan/plan.py',
        'taken_together_kept(reduced_by_walks(output), keeps_wide)',
        'taken_together_kept(reduced_by_walks(output), False)',
        f'{_LAYERS} -k together',
    ),
    Mutation(
        'types that are no rows of a table',
        'compiler/plan/plan.py',
        'reason = why_no_types(self._types, edges, given)',
        'reason = None',
        f'{_LAYERS} -k negative',
    ),
    Mutation(
        'views of rows of a large table',
        'compiler/passes/tables.py',
        'if not operation.selects and any(',
        'if any(',
        f'{_LAYERS} -k "many and types"',
    ),
    Mutation(
        'targets that types map, by edges',
        'compiler/plan/by_type.py',
        'pairs = relations.targets',
        'pairs = relations.sources',
        f'{_LAYERS} -k "pyg_s and attention"',
    ),
    Mutation(
        'products by types within torch.compile',
        'compiler/plan/by_type.py',
        'if torch.compiler.is_compiling():',
        'if False:',
        f'{_LAYERS} -k torch_compile',
    ),
    Mutation(
        'what types map and is dropped',
        'compiler/forms/forms_of_results.py',
        '*returned_of_edges(output), *kept_in(output)), ',
        '*returned_of_edges(output)), ',
        f'{_LAYERS} -k drawn_once',
    ),
    Mutation(
        'negative types of values of edges',
        'compiler/ir/operations.py',
        'if counts_back:\n        types = torch.where',
        'if True:\n        types = torch.where',
        f'{_LAYERS} -k negative_types_of_values',
    ),
    Mutation(
        'groups of nodes for types of edges',
        'compiler/functions/typed_maps.py',
        '_check(numbers.residency == EDGE)',
        '_check(True)',
        'tests/compiler/test_typed_maps_of_nodes.py',
    ),
)
