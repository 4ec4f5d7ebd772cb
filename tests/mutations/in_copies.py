"""What is broken in modules over batches, in matrices and edges that they hold, and in what published code is like."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_COPIES = 'tests/conv/modules/test_copies_of_nodes.py'
_MATRICES = 'tests/conv/modules/test_matrix_arguments.py'
_IDIOMS = 'tests/conv/modules/test_idioms.py'

OF_COPIES = (
    Mutation(
        'nodes of each copy',
        'conv/_modules/copies_of_nodes.py',
        'offsets = torch.stack([first * count for count in counts])',
        'offsets = torch.stack([first * 0 for count in counts])',
        f'{_COPIES} -k "own_code and Heads"',
    ),
    Mutation(
        'what copies share is repeated in another order',
        'conv/_modules/copies_of_nodes.py',
        'return tensor.expand(math.prod(sizes), *tensor.shape).flatten(0, 1)',
        'return tensor.repeat_interleave(math.prod(sizes), dim=0)',
        f'{_COPIES} -k "own_code and Diffusion"',
    ),
    Mutation(
        'dimensions before that of nodes',
        'compiler/symbols/one_copy.py',
        'or dim % rank < len(x.sizes):',
        'or dim % rank < len(x.sizes) - 1:',
        f'{_COPIES} -k several_rows',
    ),
    Mutation(
        'functions of all rows of what copies share',
        'compiler/symbols/copies.py',
        'if not is_row_wise(name.strip(',
        'if name == 0 and not is_row_wise(name.strip(',
        f'{_COPIES} -k several_rows',
    ),
    Mutation(
        'what is the same of all copies',
        'compiler/symbols/copies.py',
        'return (), math.prod(sizes)',
        'return (), 1',
        f'{_COPIES} -k "own_code and Embedded"',
    ),
    Mutation(
        'few edges of several copies',
        'conv/_modules/few_edges.py',
        'return 0 < count * self._num_copies(args, kwargs) < self.fewest',
        'return 0 < count < self.fewest',
        f'{_COPIES} -k few_edges',
    ),
    Mutation(
        'nodes that another copy has',
        'conv/_modules/copies_of_nodes.py',
        'if low < 0 or high >= count:',
        'if low < 0 or high >= num_copies * count:',
        f'{_COPIES} -k not_made',
    ),
    Mutation(
        'entries of one place that are several',
        'compiler/modules/sparse_matrices.py',
        'edges = self._edges if self._is_coalesced else None',
        'edges = self._edges',
        f'{_MATRICES} -k one_for_each_place',
    ),
    Mutation(
        'gradients of a matrix',
        'conv/_modules/matrix_arguments.py',
        'if isinstance(item, Tensor) and item.requires_grad:',
        'if False:',
        f'{_MATRICES} -k runs_its_own_code',
    ),
    Mutation(
        'edges of a matrix that are found again',
        'conv/_modules/matrix_arguments.py',
        'return ATTACHED.keep(item, _KEY, state, found)',
        'return found',
        f'{_MATRICES} -k kept_with_the_matrix',
    ),
    Mutation(
        'a batch that is taken for edges',
        'conv/_modules/edges_by_name.py',
        'return len(names) == 1 or names in _NAMES_OF_ROWS',
        'return len(names) > 0',
        f'{_MATRICES} -k matrix_that_is_held',
    ),
    Mutation(
        'values of edges that a module holds',
        'conv/_modules/calls.py',
        'return self.edge_index.shape[1] if self.names[0].startswith(OF_MODULE) else None',
        'return None',
        f'{_MATRICES} -k held_and_set',
    ),
    Mutation(
        'a propagate that somebody wrote',
        'conv/_compiled/compiled_conv.py',
        'if found is not known and not (name in _OF_TEMPLATES and is_template(plain, found, name)):',
        "if found is not known and found is not getattr(plain, f'_jinja_{name}', None):",
        f'{_IDIOMS} -k overridden',
    ),
    Mutation(
        'an edge_updater that somebody wrote',
        'conv/_compiled/compiled_conv.py',
        "for name in ('propagate', 'edge_updater', '_collect', '_lift'):",
        "for name in ('propagate', '_collect', '_lift'):",
        f'{_IDIOMS} -k overridden',
    ),
    Mutation(
        'extremes of torch_scatter',
        'compiler/functions/leaves.py',
        "if out is None and _REDUCTIONS.get(wanted) in ('max', 'min'):",
        "if out is None and _REDUCTIONS.get(wanted) == 'max':",
        'tests/compiler/forms/test_extremes_of_one.py -k minima',
    ),
    Mutation(
        'builtins that a file has others for',
        'compiler/capture/surroundings.py',
        'if name not in namespace}',
        'if name not in ()}',
        f'{_IDIOMS} -k "own_code and Scaled"',
    ),
    Mutation(
        'functions that tell the time',
        'compiler/capture/surroundings.py',
        "return _root(owner.__name__).lstrip('_') in _KNOWN if is_of_module else isinstance(owner, (type, type(None)))",
        'return is_of_module or isinstance(owner, (type, type(None)))',
        'tests/compiler/capture/test_surroundings.py -k cannot_be_guarded',
    ),
    Mutation(
        'numbers of a file',
        'compiler/capture/surroundings.py',
        'self._guards.add(self._module, name, found)',
        'pass',
        f'{_IDIOMS} -k number_changes',
    ),
    Mutation(
        'types of edges that are returned',
        'compiler/symbols/places.py',
        'if all(one in (own, DEVICE.get()) for one in given):',
        'if True:',
        f'{_IDIOMS} -k converted_and_returned',
    ),
    Mutation(
        'shifts that are mapped',
        'compiler/passes/shifts.py',
        "added = number if inner.op == 'add' else -number",
        'added = number',
        f'{_IDIOMS} -k ShiftedFilter',
    ),
    Mutation(
        'orders of dimensions',
        'compiler/passes/permutations.py',
        'if len(orders) != 1:',
        'if not orders:',
        'tests/compiler/passes/test_permutations.py',
    ),
    Mutation(
        'sums of dimensions in another order',
        'compiler/passes/permutations.py',
        "'dims': tuple(sorted(order[dim] for dim in dims))",
        "'dims': dims",
        f'{_IDIOMS} -k HeadsLast',
    ),
    Mutation(
        'targets behind the last',
        'compiler/functions/views.py',
        "if index.is_target and node.op == 'reduce' and 'ends_early' in node.attributes:",
        'if False:',
        f'{_IDIOMS} -k behind_the_last',
    ),
)
