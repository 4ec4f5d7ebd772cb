"""What is broken in messages that others wrote: without gradients, without sizes, with networks that are read twice."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_DETACHED = 'tests/compiler/test_detached.py'
_UNSIZED = 'tests/compiler/test_unsized_reductions.py'
_SHARED = 'tests/compiler/test_shared_networks.py'
_DEGREES = 'tests/compiler/test_degrees.py'
_CONTEXTS = 'tests/compiler/test_contexts.py'
_LAST = 'tests/graph/test_graph.py -k last_target'

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
        'int(coo.rows.max()) == self.num_targets - 1',
        'True',
        _LAST,
    ),
    Mutation(
        'the last target of sorted edges',
        'graph/orders.py',
        'bool(self.csr.indptr[-1] > self.csr.indptr[-2])',
        'True',
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
)
