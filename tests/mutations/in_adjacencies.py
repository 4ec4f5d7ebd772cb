"""What is broken in adjacencies that are taken as lists, in copies of a graph, and in what is left to PyG."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

OF_ADJACENCIES = (
    Mutation(
        'values of a matrix that is taken as a list',
        'conv/_layer/as_list.py',
        'return values is not None and not (values.dim() == 1 and bool((values == 1).all()))',
        'return False',
        'tests/conv/layer/test_as_list.py -k "written_to_are_no_longer"',
    ),
    Mutation(
        'self-loops of a matrix of torch',
        'conv/_layer/as_list.py',
        "is_same = not adds_loops or not is_other or _kept(found, 'is simple', _simple)",
        'is_same = True',
        'tests/conv/layer/test_as_list.py -k "loops_of_a_matrix"',
    ),
    Mutation(
        'sizes of a matrix',
        'conv/_layer/as_list.py',
        'return tuple(adjacency.sparse_sizes()) == sizes[::-1] and _are_listed(col, col.numel())',
        'return _are_listed(col, col.numel())',
        'tests/conv/layer/test_as_list.py -k "other_numbers_of_nodes"',
    ),
    Mutation(
        'an extreme over a matrix',
        'conv/_layer/as_list.py',
        "_SUMS = ('add', 'sum', 'mean')",
        "_SUMS = ('add', 'sum', 'mean', 'max')",
        'tests/conv/layer/test_as_list.py -k "not_taken_so"',
    ),
    Mutation(
        'loops of a matrix that weigh more',
        'conv/gcn_conv.py',
        'return adjacency if self.improved else super().as_list(x, adjacency, given)',
        'return super().as_list(x, adjacency, given)',
        'tests/conv/layer/test_as_list.py -k "improved-SparseTensor"',
    ),
    Mutation(
        'norms of a matrix by what else decides them',
        'conv/_compiled/prepared_edges.py',
        "key = 'norms of a matrix', args, tuple(kwargs.items())",
        "key = 'norms of a matrix', kwargs.get('dtype')",
        'tests/conv/layer/test_as_list.py -k "norms_of_a_matrix"',
    ),
    Mutation(
        'a size that is another than that of features',
        'conv/_layer/few_edges.py',
        'is_said = is_pair and type(size) in (tuple, list) and tuple(size) == (len(x[0]), len(x[1]))',
        'is_said = is_pair',
        'tests/conv/test_by_pyg.py -k "size"',
    ),
    Mutation(
        'many edges in place of few',
        'conv/_compiled/known_calls.py',
        'return self.plan.why_few if num_edges < self.fewest_edges else None',
        'return self.plan.why_few if self.fewest_edges else None',
        'tests/conv/test_by_pyg.py -k "many_fused and network"',
    ),
    Mutation(
        'copies of a graph in their order',
        'conv/_layer/stacks.py',
        'first += size',
        'first += 1',
        'tests/conv/layer/test_copies.py -k "outputs and 70 and SAGE and random"',
    ),
    Mutation(
        'the channels of copies',
        'conv/_layer/stacks.py',
        'stack.transpose(0, 1).reshape(stack.shape[1], -1)',
        'stack.reshape(stack.shape[1], -1)',
        'tests/conv/layer/test_copies.py -k "outputs and 3 and Graph and random"',
    ),
    Mutation(
        'tensors that a layer stores',
        'conv/_layer/repeated.py',
        'if type(value) is not Tensor]',
        'if True]',
        'tests/conv/compiled/test_known_calls.py -k "stores or live_on"',
    ),
    Mutation(
        'maps of towers in their order',
        'compiler/passes/contraction.py',
        'return torch.cat(weights)',
        'return torch.cat(weights[::-1])',
        'tests/compiler/passes/test_contraction.py',
    ),
    Mutation(
        'walks of copies side by side whose channels differ',
        'compiler/forms/lowering.py',
        'return declared.side == EDGE and declared.level != CHANNELS and',
        'return True or',
        'tests/compiler/test_stacks.py -k side_by_side',
    ),
    Mutation(
        'copies of a layer with a module of its own',
        'conv/_layer/copies.py',
        'return type(module) in _ROW_WISE or',
        'return True or',
        'tests/conv/layer/test_copies.py -k own',
    ),
    Mutation(
        'features of each copy at edges',
        'conv/_layer/copies.py',
        'value.dim() > 2 for value in',
        'value.dim() > 9 for value in',
        'tests/conv/layer/test_copies.py -k each',
    ),
    Mutation(
        'several dimensions before that of nodes',
        'conv/_compiled/leading_dimensions.py',
        'return out.unflatten(0, leading)',
        'return out.unflatten(0, leading[::-1])',
        'tests/compiler/test_stacks.py -k several',
    ),
    Mutation(
        'dimensions that differ before that of nodes',
        'conv/_compiled/leading_dimensions.py',
        'return found.pop() if len(found) == 1 else None',
        'return found.pop() if found else None',
        'tests/compiler/test_stacks.py -k another_order',
    ),
    Mutation(
        'features of edges of many dimensions',
        'conv/_compiled/leading_dimensions.py',
        'if not any(_has_several(part) for name in of_nodes',
        'if False and any(_has_several(part) for name in of_nodes',
        'tests/compiler/test_stacks.py -k many_dimensions',
    ),
)
