"""What is broken of what is around a call: code that writes, modes of torch, and how results lie in memory."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

CALLERS = 'tests/_lib/test_callers.py'
WRITTEN = 'tests/conv/test_written_inputs.py'
GRADIENTS = 'tests/conv/all_convs/test_autograd.py -k within_autocast'

OF_CALLERS = (
    Mutation(
        'other names of what is written into',
        '_lib/callers.py',
        'with_other_names(names_written(instructions), instructions)',
        'names_written(instructions)',
        f'{CALLERS} -k name',
    ),
    Mutation(
        'names of several at once',
        '_lib/names_written.py',
        'if one.opname.startswith(_LOADS) and stores:',
        'if one.opname.startswith(_LOADS):',
        f'{CALLERS} -k name',
    ),
    Mutation(
        'modules around the one that calls',
        '_lib/callers.py',
        "is_between or code.co_varnames[:1] == ('self',)",
        'is_between',
        f'{CALLERS} -k around',
    ),
    Mutation(
        'code that ends the look',
        '_lib/callers.py',
        'if frame.f_back is None or not is_within:',
        'if frame.f_back is None:',
        f'{CALLERS} -k outermost',
    ),
    Mutation(
        'what was written before a call',
        '_lib/callers.py',
        'if any(one > place or',
        'if any(True or',
        f'{CALLERS} -k before',
    ),
    Mutation(
        'loops that come to a write again',
        '_lib/callers.py',
        'begin <= place and end >= behind for',
        'False for',
        f'{CALLERS} -k loop',
    ),
    Mutation(
        'memory in tuples',
        '_lib/callers.py',
        'elif isinstance(value, (tuple, list)):',
        'elif False:',
        f'{CALLERS} -k tuple',
    ),
    Mutation(
        'copies of one tensor',
        '_lib/callers.py',
        'if id(value) not in copies:',
        'if True:',
        f'{CALLERS} -k copies',
    ),
    Mutation(
        'copies that layers read',
        'conv/_layer/layer.py',
        'if self.spec.saves_rows and not compiles and are_callers_writing():',
        'if False:',
        WRITTEN,
    ),
    Mutation(
        'copies that compiled layers read',
        'conv/_compiled/kept_apart.py',
        'return kept_from_callers(kwargs)',
        'return kwargs',
        WRITTEN,
    ),
    Mutation(
        'copies that modules read',
        'conv/_modules/module.py',
        'given = kept_from_callers(_with_copies(given, captured))',
        'given = _with_copies(given, captured)',
        WRITTEN,
    ),
    Mutation(
        'types of a backward pass within autocast',
        'ops/within_torch/autocast.py',
        '        with off_everywhere():\n            return backward(ctx, *grads)',
        '        return backward(ctx, *grads)',
        GRADIENTS,
    ),
    Mutation(
        'how results of copies lie in memory',
        'conv/_layer/stacks.py',
        'found[0].contiguous() if len(found) == 1',
        'found[0] if len(found) == 1',
        'tests/conv/layer/test_layouts.py',
    ),
    Mutation(
        'relations of a graph that nobody keeps',
        'graph/relations.py',
        '        self._graph = graph\n',
        '        import weakref\n\n        self._graph = weakref.proxy(graph)\n',
        'tests/conv/test_inference_mode.py',
    ),
    Mutation(
        'words of numbers',
        'program/vocabulary.py',
        'if all(isinstance(argument, (int, float)) for argument in arguments):',
        'if False:',
        'tests/conv/modules/test_numbers.py -k bounded',
    ),
    Mutation(
        "names of NumPy's",
        'compiler/symbols/functions_by_name.py',
        "{'axis': 'dim', 'keepdims': 'keepdim'}",
        '{}',
        'tests/compiler/test_operators.py -k names',
    ),
    Mutation(
        'arguments of functions of edges by their names',
        'compiler/functions/functions_of_edges.py',
        'for name in names[len(args) :]:',
        'for name in ():',
        'tests/conv/modules/test_remade_edges.py -k Attention',
    ),
    Mutation(
        'places in tables of any size',
        'compiler/capture/nested_layers.py',
        'torch.zeros_like(example) if is_place else example',
        'example',
        'tests/conv/modules/test_layers_on_made_edges.py -k table',
    ),
    Mutation(
        'graphs that are walked in blocks',
        'transforms/to_local_order.py',
        "edge_index.device.type == 'cpu' and count_of_blocks(",
        'False and count_of_blocks(',
        'tests/transforms/test_to_local_order.py -k blocks',
    ),
    Mutation(
        'reductions of rows of sparse matrices',
        'compiler/modules/sparse_matrices.py',
        'return scatter(self._numbers, ends, 0, Rows(ends.rows), reduce)',
        'return scatter(self._numbers, ends, 0, Rows(ends.rows))',
        'tests/conv/modules/test_sparse_matrices.py -k rows_of_torch_sparse',
    ),
    Mutation(
        'means of entries that have become one',
        'compiler/modules/sparse_matrices.py',
        'is_merged=not self._is_coalesced',
        'is_merged=False',
        'tests/conv/modules/test_sparse_matrices.py -k repeated_edges',
    ),
)
