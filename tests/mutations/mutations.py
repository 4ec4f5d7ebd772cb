"""The mutations. Those of what is compiled come last: each compiles its kernels anew."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

TRACE = 'tests/program/test_trace.py'
STATE = 'tests/conv/test_state_of_the_module.py -m "not slow"'
GAT = 'tests/conv/test_gat_conv.py'
ALL = 'tests/conv/test_all_convs.py -m "not slow"'
PATH, ROWS = 'tests/partial/paths/test_path.py', 'tests/partial/rows'
GRAPH, MAPPING = 'tests/graph/test_graph.py', 'tests/mapping/test_mapping.py'
NEIGHBOURS = 'tests/conv/test_neighbours.py -m "not slow"'
AGGREGATE = 'tests/ops/test_aggregate.py -m "not slow"'

OF_PYTHON = (
    # caches
    Mutation(
        'an address that is used again',
        '_lib/identity_cache.py',
        'if entry is None or entry.reference() is not owner:\n            return None\n        found',
        'if entry is None:\n            return None\n        found',
        'tests/_lib/test_identity_cache.py',
    ),
    Mutation(
        'a state that has changed',
        '_lib/identity_cache.py',
        'if found is None or entry.state != self._state_of(owner):',
        'if found is None:',
        'tests/_lib/test_identity_cache.py',
    ),
    Mutation(
        'a late value of an earlier state',
        '_lib/identity_cache.py',
        'if self._state_of(owner) != state:',
        'if False:',
        'tests/_lib/test_identity_cache.py',
    ),
    Mutation(
        'values made in inference mode',
        '_lib/memo.py',
        'torch.inference_mode(False)',
        'torch.inference_mode()',
        'tests/_lib/test_memo.py',
    ),
    Mutation(
        'a copy with the values of its original',
        '_lib/memo.py',
        'return Memo, ()',
        'return _with, (self._values,)\n\n\ndef _with(values):\n    memo = Memo()\n    memo._values = values\n'
        '    return memo',
        'tests/_lib/test_memo.py',
    ),
    Mutation(
        'the version of an edge_index',
        'graph/adjacency.py',
        'return tensor._version, tensor.data_ptr(), tensor.shape',
        'return tensor.data_ptr(), tensor.shape',
        f'{GRAPH} -k write',
    ),
    Mutation(
        'the strides of an edge_index',
        'graph/adjacency.py',
        'tensor.shape, tensor.stride(), tensor.dtype',
        'tensor.shape, tensor.dtype',
        f'{GRAPH} -k other_data',
    ),
    Mutation(
        'the flow in the key of a graph',
        'graph/graph.py',
        "key = ('graph', None if size is None else tuple(size), flow, num_sources, num_targets)",
        "key = ('graph', None if size is None else tuple(size), None, num_sources, num_targets)",
        f'{GRAPH} -k "second_call or every_adjacency"',
    ),
    Mutation(
        'the number of loops in the key of a graph',
        'graph/graph.py',
        "('with self-loops', loops),",
        "('with self-loops',),",
        f'{GRAPH} -k self_loops_are_cached',
    ),
    Mutation(
        'the type in the key of norms',
        'conv/_normalise.py',
        "('norm', like.dtype)",
        "('norm',)",
        'tests/conv/test_gcn_conv.py -k norms_of_a_graph',
    ),
    Mutation(
        'the size of parts in the key of a cut',
        'mapping/mapping.py',
        "('cut', mapping.balance, mapping.part_work, parts_limit)",
        "('cut', mapping.balance, parts_limit)",
        MAPPING,
    ),
    Mutation(
        'the balance in the key of a cut',
        'mapping/mapping.py',
        "('cut', mapping.balance, mapping.part_work, parts_limit)",
        "('cut', mapping.part_work, parts_limit)",
        MAPPING,
    ),
    Mutation(
        'the checksum of a kernel',
        '_lib/machine_code.py',
        ' or view[len(_MAGIC) : start] != hashlib.sha256(checked).digest()',
        '',
        'tests/_lib/test_machine_code.py',
    ),
    Mutation(
        'the key of a kernel',
        '_lib/machine_code.py',
        "if fields['key'] != key:",
        'if False:',
        'tests/_lib/test_machine_code.py',
    ),
    Mutation(
        'a folder that others may write to',
        '_lib/private_files.py',
        'mode & (stat.S_IWGRP | stat.S_IWOTH)',
        'mode & stat.S_IWOTH',
        'tests/_lib/test_private_files.py',
    ),
    Mutation(
        'what an interrupted write leaves',
        '_lib/private_files.py',
        '            os.unlink(temporary)',
        '            pass',
        'tests/_lib/test_private_files.py',
    ),
    Mutation(
        'kernels in use leave first',
        '_lib/disk.py',
        'key=lambda item: item[1].st_mtime',
        'key=lambda item: -item[1].st_mtime',
        'tests/_lib/test_disk.py',
    ),
    # graphs and cuts
    Mutation(
        'sources beyond the last one',
        'graph/build.py',
        'least < 0 or most >= graph.num_sources',
        'least < 0 or most > graph.num_sources',
        'tests/graph/test_build.py tests/conv/test_gat_conv.py -k "out_of or bad"',
    ),
    Mutation(
        'negative nodes',
        'graph/build.py',
        'wrong = ((nodes < 0) | (nodes >= count)).nonzero()',
        'wrong = (nodes >= count).nonzero()',
        'tests/graph',
    ),
    Mutation(
        'repeated edges beside loops',
        'graph/build.py',
        'first[1:] = ordered.diff() > 0',
        'first[1:] = ordered.diff() > 1',
        f'{GRAPH} -k self_loops_are_those',
    ),
    Mutation(
        'the ids of edges that were numbered anew',
        'graph/build.py',
        'return ids[edge_id]',
        'return edge_id',
        f'{GRAPH} -k self_loops_are_those',
    ),
    Mutation(
        'the inverse of a permutation',
        'graph/graph.py',
        'places[position] = torch.arange(',
        'places[:] = torch.arange(',
        'tests/ops/test_aggregate.py tests/partial/paths/test_path.py -m "not slow"',
    ),
    Mutation(
        'the slot of a piece',
        'mapping/mapping.py',
        'slots[first] = 2 * (parts[starts] - 1) + 1',
        'slots[first] = 2 * (parts[starts] - 1)',
        MAPPING,
    ),
    Mutation(
        'rows that end with a part',
        'mapping/mapping.py',
        'cuts = (degree > cut_above) & (inside > 0) & (inside < degree)',
        'cuts = (degree > cut_above) & (inside > 0) & (inside <= degree)',
        MAPPING,
    ),
    Mutation(
        'edges in no order of a graph with loops',
        'graph/graph.py',
        ' or not isinstance(origin, Adjacency) or self.num_loops is not None:',
        ' or not isinstance(origin, Adjacency):',
        f'{GRAPH} -k in_no_order',
    ),
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
        'ops/autograd.py',
        "is_read = bound.softmax or arguments.reduce in ('max', 'min')",
        'is_read = bound.softmax',
        f'{AGGREGATE} -k reductions',
    ),
    Mutation(
        'factors of a checkpoint',
        'ops/eager.py',
        'call = arguments.operands(), _call(arguments, ctx.bound, ctx.graph, weights)',
        'call = arguments.operands(), _call(arguments, ctx.bound, ctx.graph)',
        'tests/ops tests/test_memory.py -k "recomputation or ablation or retained"',
    ),
    Mutation(
        'who watches',
        'ops/eager.py',
        'torch._C._len_torch_dispatch_stack() > 0',
        'False',
        'tests/ops/test_eager.py',
    ),
    Mutation(
        'a gradient that is differentiated',
        'ops/eager.py',
        'elif is_differentiated(grad_out):',
        'elif False:',
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
        'tests/conv/test_all_convs.py -k autocast',
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
    # layers
    Mutation(
        'a layer that is explained',
        'conv/_fallback.py',
        'if conv.explain:',
        'if False:',
        f'{STATE} -k masks',
    ),
    Mutation(
        'a hook on messages',
        'conv/_fallback.py',
        "    '_message_forward_hooks',\n",
        '',
        f'{ALL} -k hooks_are_called',
    ),
    Mutation(
        'a hook on a map',
        '_lib/hooks.py',
        '        module._forward_hooks\n',
        '        False\n',
        'tests/_lib/test_hooks.py tests/conv/test_all_convs.py -k hooks',
    ),
    Mutation(
        'an aggregation that was replaced',
        'conv/_fallback.py',
        'if type(conv.aggr_module) is not _AGGREGATIONS[conv.aggr]:',
        'if False:',
        f'{ALL} -k another_aggregation',
    ),
    Mutation(
        'types that are mixed',
        'conv/_fallback.py',
        'if len(dtypes) > 1 and not',
        'if False and not',
        f'{NEIGHBOURS} -k another_type',
    ),
    Mutation(
        'ties over a matrix',
        'conv/_fallback.py',
        "return f'aggr={conv.aggr!r} over a sparse adjacency gives",
        "return None and f'aggr={conv.aggr!r} over a sparse adjacency gives",
        NEIGHBOURS,
    ),
    Mutation(
        'the order of weights',
        'conv/_attention.py',
        'return weights[ids]',
        'return weights',
        f'{GAT} -k adjacencies',
    ),
    Mutation(
        'dropout of weights that are returned',
        'conv/gat_conv.py',
        'attention=AFTER_DROPOUT',
        'attention="before dropout"',
        f'{GAT} -k "dropout"',
    ),
    Mutation(
        'the gradient of weights under dropout',
        'conv/_attention.py',
        'dropout, seed, weights.detach())',
        'dropout, seed, weights)',
        f'{GAT} -k returned_weights',
    ),
    Mutation(
        'the bias of edges',
        'conv/gat_conv.py',
        'alpha_src = total(alpha_src, None if bias is None else (self.by_head(bias) * att_edge).sum(dim=-1))',
        'pass',
        f'{STATE} -k all_maps_replaced_at_once',
    ),
    Mutation(
        'dropout in evaluation',
        'conv/_layer.py',
        'dropout = self.dropout if self.training and self.spec.attention is not None else 0.0',
        'dropout = self.dropout if self.spec.attention is not None else 0.0',
        f'{GAT} -k dropout_of_nothing',
    ),
    Mutation(
        'loops that keep their weights',
        'conv/_normalise.py',
        'loops = loops.index_put((first[places],), edge_weight[places])',
        'pass',
        'tests/conv/test_gcn_conv.py -k weights_of_self_loops',
    ),
    Mutation(
        'degrees of zero',
        'conv/_normalise.py',
        "return root.masked_fill(root == float('inf'), 0.0)",
        'return root',
        'tests/conv/test_gcn_conv.py -k degrees',
    ),
    Mutation(
        'what loops are filled with',
        'conv/_self_loops.py',
        "reduce = 'mean' if fill == 'mean' else 'sum'",
        "reduce = 'sum'",
        'tests/conv/test_gatv2_conv.py -k fill_values',
    ),
    Mutation(
        'the width of features',
        'conv/_checks.py',
        'fits = width in (-1, features.shape[1])',
        'fits = True',
        f'{ALL} -k features_of_a_wrong_width',
    ),
    Mutation(
        'the number of edge features',
        'conv/_checks.py',
        'tuple(edge_attr.shape) != (edges.num_user_edges, width)',
        'edge_attr.shape[1] != width',
        f'{ALL} -k edge_features_of_a_wrong_length',
    ),
)

OF_PROGRAMS = (
    Mutation(
        'the derivative of a difference', 'program/trace.py', 'return grad, -grad if isinstance(y, Value) else None',
        'return grad, grad if isinstance(y, Value) else None', TRACE,
    ),
    Mutation(
        'the derivative of a quotient', 'program/trace.py', 'return scaled, -(scaled * out) if isinstance(y, Value) else None',
        'return scaled, scaled * out if isinstance(y, Value) else None', TRACE,
    ),
    Mutation(
        'the derivative of a root', 'program/trace.py', 'return (grad * 0.5 / out,)', 'return (grad / out,)', TRACE,
    ),
    Mutation(
        'the derivative of a sigmoid', 'program/trace.py', "return (grad * out * _record('sigmoid', (-x,)),)",
        "return (grad * out * _record('sigmoid', (x,)),)", TRACE,
    ),
    Mutation(
        'the second derivative of a tangent', 'program/trace.py', "return (grad * (-2.0 * _record('tanh', (x,)) * out),)",
        "return (grad * (2.0 * _record('tanh', (x,)) * out),)", TRACE,
    ),
    Mutation(
        'the slope of a rectifier', 'program/trace.py',
        "return _record('positive', (x, grad, grad * negative_slope)), None", "return _record('positive', (x, grad, grad)), None",
        TRACE,
    ),
    Mutation(
        'the derivative of the smaller of two', 'program/trace.py',
        "_record('positive', (difference, grad, 0.0)), _record('positive', (difference, 0.0, grad))",
        "_record('positive', (difference, grad, 0.0)), _record('positive', (difference, grad, 0.0))", TRACE,
    ),
    Mutation(
        'gradients that meet', 'program/trace.py', 'found[id(argument)] + part if id(argument) in found else part', 'part',
        TRACE,
    ),
    Mutation(
        'a product with nothing', 'program/trace.py',
        "if word == 'mul' and _is(arguments[1], 0):\n        return 0.0",
        "if word == 'mul' and _is(arguments[1], 0):\n        return arguments[0]", f'{TRACE} tests/program tests/conv/test_notes.py',
    ),
)  # fmt: skip

OF_KERNELS = (
    Mutation(
        'the scale of dropout', 'codegen/philox.py', '2**32 - 1), 1.0 / (1.0 - probability)', '2**32 - 1), 1.0',
        f'{GAT} -k dropout_keeps_the_expectation',
    ),
    Mutation(
        'the key of dropout', 'codegen/philox.py', '            key = [builder.add(k, integers', '            [builder.add(k, integers',
        'tests/cpu/test_random.py',
    ),
    Mutation(
        'heads that drop alike', 'cpu/random.py', '(lane % kind.heads for lane in range(lanes))', '(0 for lane in range(lanes))',
        'tests/cpu/test_random.py',
    ),
    Mutation(
        'a tile that overlaps', 'cpu/row_tiling.py', 'if not split_channels or rest in (0, channels):', 'if True:',
        f'{AGGREGATE} -k ragged_rows_of_unsorted_edges',
    ),
    Mutation(
        'the sums so far under a new maximum', 'cpu/walks/forward.py',
        'result, total, top = result * factor, total * factor, raised', 'result, total, top = result * factor, total, raised',
        f'{GAT} -k extreme_scores',
    ),
    Mutation(
        'edges beyond the end of a row', 'cpu/walks/forward.py', 's = mask_edges(s, end - q, -np.inf)', 'pass',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    Mutation(
        'pieces of a softmax', 'cpu/walks/forward.py', 'result, top = result * mine + found * theirs, raised',
        'result, top = result * mine + found, raised', f'{AGGREGATE} -k both_mappings',
    ),
    Mutation(
        'the number of ties', 'cpu/walks/forward.py', 'equal(result, best, ties, 0.0) + 1.0, ties)',
        'equal(result, best, 0.0, 0.0) + 1.0, ties)', f'{AGGREGATE} -k ties_share',
    ),
    Mutation(
        'ties of pieces', 'cpu/walks/forward.py', 'result, ties = best, equal(result, best, ties, 0.0) + theirs',
        'result, ties = best, theirs', f'{AGGREGATE} -k "ties_share or reductions_in_both"',
    ),
    Mutation(
        'the slot of what a part leaves', 'cpu/walks/forward.py', 'slot = 2 * piece + (begin == row_begin)',
        'slot = 2 * piece + (end == row_end)', f'{AGGREGATE} -k both_mappings',
    ),
    Mutation(
        'the adjoint of a softmax', 'cpu/walks/backward.py', 'through = alpha * (through - mean_dot)', 'through = alpha * through',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    Mutation(
        'dropout in backward', 'cpu/walks/backward.py', 'through = through * kept', 'pass',
        f'{AGGREGATE} -k dropout_of_weights',
    ),
    Mutation(
        'edges beyond the end of a row in backward', 'cpu/walks/backward.py', 'through = mask_edges(through, end - q, 0.0)', 'pass',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    Mutation(
        'edges that message and score both reach', 'cpu/walks/backward.py',
        'edge_grads = add_tuples(edge_grads, found[2])', 'pass', f'{AGGREGATE} -k "program_equals or products"',
    ),
    Mutation(
        'gradients of parameters', 'cpu/walks/backward.py', 'parameter_sums = add_tuples(parameter_sums, flow[5])', 'pass',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
)  # fmt: skip

MUTATIONS = (*OF_PYTHON, *OF_PROGRAMS, *OF_KERNELS)
