"""What is broken in messages that others wrote: without gradients, without sizes, with networks that are read twice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_DETACHED = 'tests/compiler/test_detached.py'
_UNSIZED = 'tests/compiler/test_unsized_reductions.py'
_SHARED = 'tests/compiler/test_shared_networks.py'
_DEGREES = 'tests/compiler/test_degrees.py'
_CONTEXTS = 'tests/compiler/test_contexts.py'
_LAST = 'tests/graph/test_graph.py -k last_target'

_EDGE_INDEX = 'tests/compiler/test_edge_index.py'
_SIZES = 'tests/compiler/test_sizes.py'
_WITHIN = 'tests/compiler/test_ends_within.py'
_PILES = 'tests/compiler/test_piles.py'
_STACKS = 'tests/compiler/test_stacks.py'

OF_CODE_OF_OTHERS = (
    Mutation(
        'what is recorded without gradients',
        'compiler/symbols.py',
        "if not torch.is_grad_enabled() and op != 'detach':",
        'if False:',
        _DETACHED,
    ),
    Mutation(
        'the gradient of values that have none',
        'ops/edge_values.py',
        'if not values.requires_grad:\n            # computed',
        'if False:\n            # computed',
        f'{_DETACHED} -k those_of_pyg',
    ),
    Mutation(
        'the second gradient of values that have none',
        'ops/edge_values.py',
        'if not values.requires_grad:\n                continue',
        'if False:\n                continue',
        f'{_DETACHED} -k "gradients_of_gradients and False"',
    ),
    Mutation(
        'gradients by operators of values that have none',
        'ops/edge_values.py',
        'if not out.requires_grad:',
        'if False:',
        f'{_DETACHED} -k "gradients_of_gradients and True"',
    ),
    Mutation(
        'results that end early',
        'compiler/plan.py',
        'if self.ends_early and not edges.graph().has_last_target:',
        'if False:',
        _UNSIZED,
    ),
    Mutation(
        'results that end early within torch.compile',
        'compiler/traced.py',
        'if plan.ends_early:',
        'if False:',
        f'{_UNSIZED} -k torch_compile',
    ),
    Mutation(
        'the last target of edges as they come',
        'graph/orders.py',
        'int(coo.rows.max())',
        'self.num_targets - 1',
        _LAST,
    ),
    Mutation(
        'the last target of sorted edges',
        'graph/orders.py',
        'int((self.csr.indptr < self.csr.indptr[-1]).sum()) - 1',
        'self.num_targets - 1',
        _LAST,
    ),
    Mutation(
        'networks that are read twice',
        'compiler/plan.py',
        'return plan if other is None or not other._is_much_less_than(plan) else other',
        'return plan',
        f'{_SHARED} -k once',
    ),
    Mutation(
        'networks that are kept though edges are many',
        'compiler/plan.py',
        'may_share = keeps_wide and len(plan.walks) > 1',
        'may_share = True',
        f'{_SHARED} -k many_edges',
    ),
    Mutation(
        'classes that are read around a message',
        'compiler/surroundings.py',
        'return found if isinstance(found, type) and name in classes else',
        'return found if isinstance(found, type) else',
        'tests/compiler/test_surroundings.py -k refused',
    ),
    Mutation(
        'a message that computes under autocast',
        'compiler/symbols.py',
        'if torch._C._is_any_autocast_enabled():',
        'if False:',
        f'{_CONTEXTS} -k cast',
    ),
    Mutation(
        'a cast around a capture',
        'compiler/capture.py',
        'with torch.enable_grad(), off_everywhere(), _WithoutNumbers():',
        'with torch.enable_grad(), _WithoutNumbers():',
        f'{_CONTEXTS} -k around',
    ),
    Mutation(
        'a checkpoint that runs without gradients',
        'compiler/leaves.py',
        'torch.utils.checkpoint.checkpoint: checkpoint}',
        '}',
        f'{_CONTEXTS} -k checkpoint',
    ),
    Mutation(
        'values that are no tensors',
        'compiler/surroundings.py',
        "changed |= {'super': _super, 'isinstance': is_instance}",
        "changed |= {'super': _super}",
        f'{_CONTEXTS} -k tensors',
    ),
    Mutation(
        'values that torch takes for no tensors',
        'compiler/leaves.py',
        'FUNCTIONS |= {torch.is_tensor: is_tensor, ',
        'FUNCTIONS |= {',
        f'{_CONTEXTS} -k tensors',
    ),
    Mutation(
        'edges on a device without kernels',
        'conv/_compiled.py',
        "reason = 'torch compiles' if torch.compiler.is_compiling() else fallback.why_not_device(adjacency)",
        "reason = 'torch compiles' if torch.compiler.is_compiling() else None",
        'tests/conv/test_other_devices.py -k "devices and TAG"',
    ),
    Mutation(
        'towers on a device without kernels',
        'conv/_scaled_towers.py',
        'if why_not_device(edge_index) is not None:',
        'if False:',
        'tests/conv/test_other_devices.py -k "devices and name32"',
    ),
    Mutation(
        'tensors with operators of their own',
        'conv/_fallback.py',
        'if own is not None:',
        'if False:',
        'tests/conv/test_other_devices.py -k reasons',
    ),
    Mutation(
        'errors that a message catches',
        'compiler/surroundings.py',
        "before == 'PUSH_EXC_INFO' and name != 'WITH_EXCEPT_START'",
        'False',
        'tests/compiler/test_surroundings.py -k refused',
    ),
    Mutation(
        'blocks that are no handlers of errors',
        'compiler/surroundings.py',
        "before == 'PUSH_EXC_INFO' and name != 'WITH_EXCEPT_START'",
        "before == 'PUSH_EXC_INFO'",
        'tests/compiler/test_surroundings.py -k block',
    ),
    Mutation(
        'lists that a message writes into',
        'compiler/watch.py',
        'return Unwritten(name, found) if isinstance(found, list) else found',
        'return list(found) if isinstance(found, list) else found',
        'tests/compiler/test_surroundings.py -k refused',
    ),
    Mutation(
        'self-loops of a sparse matrix that a layer replaces',
        'conv/_as_list.py',
        "keeps_loops = plain is SimpleConv and self.combine_root == 'self_loop'",
        'keeps_loops = False',
        'tests/conv/test_as_list.py -k "those_of_pyg and Simple"',
    ),
    Mutation(
        'tensors that a result is no function of',
        'ops/autograd.py',
        'create_graph=with_graph, allow_unused=True))',
        'create_graph=with_graph))',
        'tests/ops/test_differentiable.py',
    ),
    Mutation(
        'the type by default of a plan',
        'conv/_plans.py',
        'return torch.get_default_dtype(), *(',
        'return None, *(',
        f'{_DEGREES} -k another_type',
    ),
    Mutation(
        'the type by default of a call like the one before',
        'conv/_known_calls.py',
        'shapes = [torch.get_default_dtype(), adjacency.dtype,',
        'shapes = [adjacency.dtype,',
        f'{_DEGREES} -k another_type',
    ),
    Mutation(
        'any number behind the last target',
        'compiler/places.py',
        'type(other) is int and other == 1',
        'type(other) is int',
        f'{_EDGE_INDEX} -k sizes_of_the_last',
    ),
    Mutation(
        'the targets of a reversed flow',
        'compiler/places.py',
        'Place(row % 2 == self.target_row)',
        'Place(row % 2 == 1)',
        f'{_EDGE_INDEX} -k by_rows_of_the_edges',
    ),
    Mutation(
        'rows that may be of edges',
        'conv/_call.py',
        ' and sources != graph.num_user_edges',
        '',
        f'{_EDGE_INDEX} -k as_many',
    ),
    Mutation(
        'a refusal by numbers of rows, remembered',
        'conv/_call.py',
        "return 'edge_index' in self.given",
        'return False',
        f'{_EDGE_INDEX} -k as_many',
    ),
    Mutation(
        'rows of nodes that are not counted',
        'conv/_known_arguments.py',
        'for side in (0, 1)}',
        'for side in ()}',
        f'{_EDGE_INDEX} -k other_numbers',
    ),
    Mutation(
        'edges to the row behind the last',
        'compiler/plan.py',
        '<= edges.graph().last_target',
        '< edges.graph().last_target',
        f'{_SIZES} -k behind_the_last',
    ),
    Mutation(
        'rows behind the targets',
        'compiler/written.py',
        'return x[:size] if size <= x.shape[0] else',
        'return x[:size] if True else',
        f'{_SIZES} -k those_of_pyg',
    ),
    Mutation(
        'a tensor of the layer that becomes a number',
        'compiler/watch.py',
        'not isinstance(found, Tensor) or',
        '',
        f'{_SIZES} -k change',
    ),
    Mutation(
        'values of sources that are added within a network',
        'compiler/kept.py',
        "or (x.residency == SOURCE and node.op == 'add')",
        'or False',
        f'{_WITHIN} -k those_of_pyg',
    ),
    Mutation(
        'values of targets within a network',
        'compiler/kept.py',
        'x.residency == TARGET or',
        'False or',
        f'{_WITHIN} -k those_of_pyg',
    ),
    Mutation(
        'a pile of different shapes',
        'compiler/handlers.py',
        'part.node.shape != first.node.shape or',
        'False or',
        f'{_PILES} -k different',
    ),
    Mutation(
        'the mean of a pile',
        'compiler/piles.py',
        'self.sum(dim, keepdim), len(self._parts))',
        'self.sum(dim, keepdim), 2)',
        f'{_PILES} -k those_of_pyg',
    ),
    Mutation(
        'a pile that keeps its dimension',
        'compiler/piles.py',
        ' or keepdim:',
        ':',
        f'{_PILES} -k refused',
    ),
    Mutation(
        'a small matrix times a column',
        'compiler/own_matrices.py',
        "made('permute', x, dims=(0, 2, 1))",
        'x',
        f'{_EDGE_INDEX} -k rows_of_nodes',
    ),
    Mutation(
        'a name that was nowhere',
        'compiler/surroundings.py',
        'guards.add(owner, name, None)',
        'pass',
        'tests/compiler/test_surroundings.py -k nowhere',
    ),
    Mutation(
        'a concatenation with features of all',
        'compiler/handlers.py',
        'part.is_stacked != first.is_stacked for part in others',
        'False for part in others',
        f'{_STACKS} -k those_of_all',
    ),
    Mutation(
        'a stack of other edges',
        'conv/_known_arguments.py',
        'kwargs[name].shape[1] != num_edges',
        'False',
        f'{_STACKS} -k other_edges',
    ),
)
