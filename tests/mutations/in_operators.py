"""What is broken in autograd, operators, HAGs, paths and rows."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PATH = 'tests/partial/paths/test_path.py'

AGGREGATE = 'tests/ops/test_aggregate.py -m "not slow"'
ROWS = 'tests/partial/rows'

OF_OPERATORS = (
    # autograd and operators
    Mutation(
        'operands that are not saved',
        'program/adjoint.py',
        "if bound.softmax or reduce in ('max', 'min'):\n        return ()",
        'if bound.softmax:\n        return ()',
        f'{AGGREGATE} -k reductions',
    ),
    Mutation(
        'operands of a score that are not saved',
        'program/adjoint.py',
        "through_score = ['weight'] if used_by(bound.score, needed) else []",
        'through_score = []',
        f'{AGGREGATE} -k "program_equals or some_operands"',
    ),
    Mutation(
        'an output that is not saved',
        'ops/plan.py',
        "self.reads_output = self.bound.softmax or reduce in ('max', 'min')",
        'self.reads_output = self.bound.softmax',
        f'{AGGREGATE} -k reductions',
    ),
    Mutation(
        'who watches',
        'ops/intercepted.py',
        'torch._C._len_torch_dispatch_stack() > 0',
        'False',
        'tests/ops/test_eager.py',
    ),
    Mutation(
        'a gradient that is differentiated',
        'ops/eager.py',
        ' and not is_differentiated(grad_out)\n',
        '\n',
        'tests/ops/test_eager.py',
    ),
    Mutation(
        'long sums',
        '_lib/row_products.py',
        'ROWS_AT_ONCE = 2048',
        'ROWS_AT_ONCE = 2**30',
        'tests/_lib/test_row_products.py',
    ),
    Mutation(
        'the last rows of a product',
        '_lib/row_products.py',
        'found + first[whole:].t() @ second[whole:]',
        'found',
        'tests/_lib/test_row_products.py',
    ),
    Mutation(
        'the type of autocast',
        'ops/autocast.py',
        'return torch.float32 if x.is_cuda else torch.get_autocast_dtype(x.device.type)',
        'return torch.float32',
        'tests/ops/test_autocast.py',
    ),
    Mutation(
        'float64 under autocast',
        'ops/autocast.py',
        'if not is_on(x.device) or x.dtype is torch.float64:',
        'if not is_on(x.device):',
        'tests/ops/test_autocast.py',
    ),
    Mutation(
        'rows without a gradient',
        'ops/linear.py',
        'among_zeros(grad @ weight, rows, len(x))',
        'among_zeros(grad @ weight, rows - rows[:1], len(x))',
        'tests/ops/test_linear.py',
    ),
    Mutation(
        'the gradient of what several maps map',
        'ops/several_maps.py',
        'wanted, counts, of_x=of_x)',
        'wanted, counts)',
        'tests/ops/test_several_maps.py',
    ),
    Mutation(
        'a result that backward reads',
        '_lib/functions.py',
        "getattr(node, 'reads_result', True) is False",
        'True',
        'tests/ops/test_large_sums.py',
    ),
    Mutation(
        'blocks that forget what choosing rows gained',
        'partial/rows/active.py',
        'rows is not None and rows.costs_more',
        'False',
        'tests/partial/rows/test_gain.py',
    ),
    Mutation(
        'blocks that must give NaN and compute all rows',
        'partial/rows/active.py',
        'if elsewhere == RAISE and rows is not None',
        'if rows is not None',
        'tests/partial/rows/test_gain.py',
    ),
    Mutation(
        'edges that are left out and count for nothing',
        'partial/rows/nodes.py',
        'found += edge_cost(row_bytes) * (graph.num_edges',
        'found += 0.0 * (graph.num_edges',
        'tests/partial/rows/test_gain.py',
    ),
    Mutation(
        'what else reads the subtrahend',
        'ops/large_sums.py',
        'return grad, torch.sub(of_second, grad, out=on_huge_pages(torch.empty_like(of_second)))',
        'return grad, -grad',
        'tests/ops/test_large_sums.py -k difference',
    ),
    Mutation(
        'the share of a head in a mean',
        'ops/large_sums.py',
        'torch.div(of_heads, divisor, out=',
        'torch.div(of_heads, 1, out=',
        'tests/ops/test_large_sums.py -k heads',
    ),
    Mutation(
        'how many times a sum is added in place',
        'ops/large_sums.py',
        'result.add_(second, alpha=times)',
        'result.add_(second)',
        'tests/ops/test_large_sums.py -k several_times',
    ),
    Mutation(
        'large gradients that are divided',
        'cpu/adjoint.py',
        'return torch.div(grad_out, counts, out=',
        'return torch.div(grad_out, 1, out=',
        'tests/cpu/test_means.py -k huge_pages',
    ),
    Mutation(
        'the factors of a mean that is transposed',
        'cpu/adjoint.py',
        'divisors_of(call.graph).to(grad_out.dtype).reciprocal()',
        'divisors_of(call.graph).to(grad_out.dtype)',
        'tests/cpu/test_means.py',
    ),
    Mutation(
        'the bias of some rows',
        'ops/linear.py',
        'torch.addmm(bias, block, weight.t(), out=out[places])',
        'torch.mm(block, weight.t(), out=out[places])',
        'tests/ops/test_linear.py',
    ),
    # HAGs, paths, rows
    Mutation(
        'the direction of a HAG',
        'ops/hag.py',
        'torch.ops.pygfuse.hag_sum(grad, row_factors, factors, ctx.hag.serial, not ctx.backwards, ctx.rows)',
        'torch.ops.pygfuse.hag_sum(grad, factors, row_factors, ctx.hag.serial, not ctx.backwards, ctx.rows)',
        'tests/ops/test_hag.py -k factors',
    ),
    Mutation(
        'a minimum over a HAG',
        'ops/hag.py',
        "hag.num_targets, reduce == 'min')[0]",
        'hag.num_targets, False)[0]',
        'tests/ops/test_hag.py -k equals_the_plain_path',
    ),
    Mutation(
        'the sizes of a HAG',
        'conv/_hag.py',
        'if sizes != expected:',
        'if False:',
        'tests/conv/test_hag.py',
    ),
    Mutation(
        'loops in the place of others',
        'conv/_hag.py',
        'graph.num_edges != graph.num_user_edges + edges.loops',
        'False',
        'tests/conv/test_hag.py',
    ),
    Mutation(
        'edge weights over a HAG',
        'conv/_layer.py',
        "return None if edge is None else 'its messages have edge weights'",
        'return None',
        'tests/conv/test_hag.py',
    ),
    Mutation(
        'a path that lacks rows',
        'partial/paths/path.py',
        'return not bool((active > self.active).any())',
        'return True',
        PATH,
    ),
    Mutation(
        'paths that are never looked for',
        'partial/paths/policy.py',
        'if forced is False or not all_edges',
        'if True or not all_edges',
        'tests/partial/paths/test_policy.py',
    ),
    Mutation(
        'the rows of both sets',
        'partial/rows/row_set.py',
        'return bool(inside.all()) and bool(',
        'return bool(',
        f'{ROWS}/test_row_set.py',
    ),
    Mutation(
        'the ids of the edges of some rows',
        'partial/rows/row_set.py',
        'places if csr.edge_id is None else csr.edge_id[places]',
        'places',
        f'{ROWS}',
    ),
    Mutation(
        'negative rows',
        'partial/rows/row_set.py',
        'torch.where(rows < 0, rows + total, rows).unique()',
        'rows.unique()',
        f'{ROWS}',
    ),
    # networks on edges
    Mutation(
        'features of edges that are read twice',
        'ops/edge_mlp/edge_rows.py',
        'self._grad.add_(grad)',
        'self._grad.copy_(grad)',
        'tests/ops/test_edge_mlp.py -k features_of_edges',
    ),
    Mutation(
        'a result of an activation that a product is added to',
        'ops/edge_mlp/steps.py',
        'is_read = isinstance(self.previous, Activation) or _is_features(self.previous)',
        'is_read = _is_features(self.previous)',
        'tests/ops/test_edge_mlp.py -k features_of_edges',
    ),
    Mutation(
        'edges that tie by a scale',
        'compiler/network.py',
        'if isinstance(stage, (Layer, Norm))]',
        'if isinstance(stage, Layer)]',
        'tests/compiler/test_edge_networks.py -k scale_of_zero',
    ),
)
