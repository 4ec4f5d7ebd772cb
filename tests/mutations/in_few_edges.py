"""What is broken in what small graphs and repeated calls take a short way for."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

REPEATED = 'tests/conv/layer/test_repeated.py'
SINGLE_PART = 'tests/cpu/few_edges/test_single_part.py'
SORT = 'tests/cpu/edges/test_sort.py'
ALONG = 'tests/ops/few_edges/test_sums.py'
LAYERS_ALONG = 'tests/conv/layer/test_few_edges.py'
NETWORKS_ALONG = 'tests/ops/few_edges/test_networks.py'
EDGE_CONV_ALONG = 'tests/conv/edge_conv/test_few_edges.py'
LISTED = 'tests/ops/test_listed.py'
SHARES = 'tests/cpu/few_edges/test_listed_walks.py'
MAPPED = 'tests/ops/few_edges/test_mapped_sums.py'
THREADS = 'tests/conv/layer/test_threads.py'

OF_FEW_EDGES = (
    # several threads
    *[
        Mutation(
            f'how a call runs, read of the layer again: {name}',
            f'conv/{path}',
            'edges.form',
            'self.note.known.few[0]',
            f'{THREADS} -k between',
        )
        for name, path in (('maps', '_layer/few_edges.py'), ('GCN', 'gcn_conv.py'), ('EdgeConv', 'edge_conv.py'))
    ],
    # shares of a row
    Mutation(
        'the first share twice',
        'cpu/row_tiling.py',
        'starts = [(0, start) for start in range(0, channels, share)]',
        'starts = [(0, max(start - share, 0)) for start in range(0, channels, share)]',
        f'{SHARES} -k whole',
    ),
    Mutation(
        'shares that follow from the number of threads',
        'cpu/few_edges/listed_walks.py',
        'return self._shares is not None and are_of',
        'return self._shares is not None and torch.get_num_threads() > 1 and are_of',
        f'{SHARES} -k bits',
    ),
    Mutation(
        'shares that two threads cannot have as many of',
        'cpu/row_tiling.py',
        'if channels % (2 * share):',
        'if channels % share:',
        f'{SHARES} -k no_shares',
    ),
    Mutation(
        'shares of what has a score',
        'cpu/few_edges/listed_walks.py',
        'if heads == 1 and bound.score is None else None',
        'if heads == 1 else None',
        f'{SHARES} -k no_shares',
    ),
    # programs along edges as they come
    Mutation(
        'a list that nobody checks',
        'cpu/walks/listed.py',
        'count = OUT_OF_RANGE',
        'count = 0',
        f'{LISTED} -k not_there',
    ),
    Mutation(
        'self-loops beside those that are put in',
        'cpu/walks/listed.py',
        'count += few.loops < 0 or target != source',
        'count += 1',
        f'{LISTED} -k self_loops',
    ),
    Mutation(
        'the other edges of a softmax along a list',
        'cpu/walks/listed_backward.py',
        'through = alpha * (through - gather_edges(delta, targets, q, count, heads, 0))',
        'through = alpha * through',
        f'{LISTED} -k sorted_edges',
    ),
    Mutation(
        'scores along a list that keep more digits than the largest',
        'cpu/walks/listed_backward.py',
        'alpha = exp(above(alpha, top)) * factor',
        'alpha = exp(alpha - top) * factor',
        'tests/ops/test_aggregate.py -k rounded_before',
    ),
    Mutation(
        'the adjoint of a mean along a list',
        'cpu/walks/listed_backward.py',
        'grad = grad / degrees[targets[k]]',
        'pass',
        f'{LISTED} -k sorted_edges',
    ),
    Mutation(
        'what is said of sorted edges',
        'ops/listed.py',
        'row_bytes) or not only_a_note_is_said():',
        'row_bytes):',
        f'{LISTED} -k what_is_said',
    ),
    Mutation(
        'a first call along sorted edges',
        '_lib/modes.py',
        "{**said.__dict__, 'note': None} == _DEFAULTS.__dict__",
        'False',
        f'{LISTED} -k same_bits',
    ),
    # calls that are like the one before
    Mutation(
        'the type of an edge_index that is known',
        'conv/_layer/repeated.py',
        'shapes = [adjacency.dtype, adjacency.device,',
        'shapes = [adjacency.device,',
        f'{REPEATED} -k another_kind',
    ),
    Mutation(
        'widths of features that are known',
        'conv/_layer/repeated.py',
        'tensor.dtype, tensor.device, shape[1:], len',
        'tensor.dtype, tensor.device, len',
        f'{REPEATED} -k "another_kind or errors"',
    ),
    Mutation(
        'features of no rows that are known',
        'conv/_layer/repeated.py',
        ', len(shape) > 0 and shape[0] > 0',
        '',
        f'{REPEATED} -k "another_kind or errors"',
    ),
    Mutation(
        'names of arguments that are known',
        'conv/_layer/repeated.py',
        'len(values), *given, *of_prepared',
        'len(values), *of_prepared',
        f'{REPEATED} -k another_kind',
    ),
    Mutation(
        'what a layer that is known read of itself',
        'conv/_layer/repeated.py',
        '(*of_prepared[0], *identities_of(layer))',
        'identities_of(layer)',
        REPEATED,
    ),
    Mutation(
        'parts of a layer that is known',
        'conv/_layer/repeated.py',
        '*layer._modules.values(), *held',
        '*held',
        REPEATED,
    ),
    Mutation(
        'narrow types of a block',
        'conv/_layer/repeated.py',
        '        or torch._C._is_any_autocast_enabled()\n',
        '',
        f'{REPEATED} -k block',
    ),
    Mutation(
        'what stands in for torch in a block',
        'conv/_layer/repeated.py',
        '        or torch._C._len_torch_function_stack()\n',
        '',
        f'{REPEATED} -k block',
    ),
    Mutation(
        'a HAG of a call that is known',
        'conv/_layer/repeated.py',
        ' or attached(adjacency) is not None:',
        ':',
        f'{REPEATED} -k hag',
    ),
    # edges that are added up as they come
    Mutation(
        'sources that are not there, of edges as they come',
        'cpu/walks/ends.py',
        'outside |= target | (last_target - target) | source | (last_source - source)',
        'outside |= target | (last_target - target)',
        f'{ALONG} -k not_there',
    ),
    Mutation(
        'self-loops among edges as they come',
        'cpu/few_edges/sums.py',
        'if not with_loops or targets[edge] != sources[edge]:',
        'if num_edges > 0:',
        f'{ALONG} -k products',
    ),
    Mutation(
        'the adjoint of a mean along edges as they come',
        'cpu/few_edges/sums.py',
        'divided, multiplied, weighted = mean and not transposed, mean and transposed,',
        'divided, multiplied, weighted = mean and not transposed, False,',
        f'{ALONG} -k "products or other_sources"',
    ),
    Mutation(
        'the layout of edges that hooks gave back',
        'cpu/few_edges/sums.py',
        'if edge_index.dtype is not torch.int64 or not edge_index.is_contiguous():',
        'if edge_index.dtype is not torch.int64:',
        f'{ALONG} -k hooks',
    ),
    Mutation(
        'rows that are not there, of edges as they come',
        'ops/few_edges/sums.py',
        'if x.dim() != 2 or x.shape[0] != rows:',
        'if x.dim() != 2:',
        f'{ALONG} -k fit',
    ),
    Mutation(
        'both ends of a normalised sum',
        'ops/few_edges/sums.py',
        'if num_sources != num_targets and (itself is not None or reduce not in (*SUMS, WEIGHTED)):',
        'if num_sources != num_targets and itself is not None:',
        f'{ALONG} -k fit',
    ),
    Mutation(
        'the block around a backward pass along edges as they come',
        'ops/few_edges/sums.py',
        'elif nothing_is_said() or not ctx.form[-1]:',
        'elif True:',
        f'{ALONG} -k said',
    ),
    Mutation(
        'who intercepts a backward pass along edges as they come',
        'ops/few_edges/sums.py',
        'if type(grad) is not Tensor or is_intercepted() or is_batched(grad):',
        'if type(grad) is not Tensor or is_batched(grad):',
        f'{ALONG} -k intercepts',
    ),
    Mutation(
        'weights of edges that come along',
        'conv/_layer/few_edges.py',
        'form = None if brought else self.form_of_few(x, prepared)',
        'form = self.form_of_few(x, prepared)',
        f'{LAYERS_ALONG} -k weights',
    ),
    Mutation(
        'edges that inference made',
        'ops/listed.py',
        'is_refused = edge_index.is_inference() and not torch.is_inference_mode_enabled()',
        'is_refused = False',
        f'{LAYERS_ALONG} -k inference',
    ),
    Mutation(
        'a list that was written to and that hooks had copied',
        'ops/eager.py',
        'graph = as_saved(graph, token) if is_listed else graph',
        'pass',
        f'{LISTED} -k hooks_copied',
    ),
    Mutation(
        'rows of a call along edges as they come',
        'mapping/few_edges.py',
        '(num_edges + num_nodes) *',
        'num_edges *',
        f'{LAYERS_ALONG} -k how_many',
    ),
    Mutation(
        'the width of rows along edges as they come',
        'conv/_layer/few_edges.py',
        'counted_bytes(width, source.element_size(), scores_channels)',
        'counted_bytes(1, source.element_size(), scores_channels)',
        f'{LAYERS_ALONG} -k wide',
    ),
    Mutation(
        'edges whose channels are scored, which count twice',
        'conv/_layer/few_edges.py',
        'form.form.channels, form.form.program.scores_channels',
        'form.form.channels, False',
        f'{LAYERS_ALONG} -k scored',
    ),
    Mutation(
        'the same of programs',
        'ops/listed.py',
        'element_bytes, plan.bound.program.scores_channels)',
        'element_bytes)',
        'tests/ops/test_listed.py -k score_channels',
    ),
    Mutation(
        'a tensor twice in a first call',
        'conv/_layer/layer.py',
        '            out = self.run_few(x, few, prepared)',
        '            out = self.run_few(inputs.x, few, prepared)',
        f'{LAYERS_ALONG} -k tensor_twice',
    ),
    Mutation(
        'rows to which an adjoint is added',
        'cpu/few_edges/sums.py',
        'row = load_row(out, at) if begun else row_full(0.0)',
        'row = row_full(0.0)',
        f'{MAPPED} -k one_node',
    ),
    Mutation(
        'a number that differs from call to call, packed once',
        'codegen/packing.py',
        "return f'bits({name}), ' if name else f'{_bits(value)}, '",
        "return f'{_bits(value)}, '",
        'tests/cpu/compilation/test_launch.py',
    ),
    # linear maps of sums along them
    Mutation(
        'targets that are sources, mapped by themselves',
        'ops/few_edges/mapped_sums.py',
        '*form, True, of_own if is_shared else None)',
        '*form, True, None)',
        f'{MAPPED} -k one_node',
    ),
    Mutation(
        'a map of sums that somebody watches',
        '_lib/hooks.py',
        "type(module) not in LINEAR or why_not_as_it_is(module, 'it') is not None",
        'type(module) not in LINEAR',
        f'{MAPPED} -k are_called',
    ),
    Mutation(
        'a bias of the map of targets',
        'ops/few_edges/mapped_sums.py',
        '(of_root is not None and of_root[1] is None)',
        'of_root is not None',
        f'{MAPPED} -k with_a_bias',
    ),
    Mutation(
        'what is said around the backward pass of mapped sums',
        'ops/few_edges/mapped_sums.py',
        'not is_batched(grad) and nothing_is_said()',
        'not is_batched(grad)',
        f'{MAPPED} -k around_backward',
    ),
    Mutation(
        'rows without channels along edges as they come',
        'conv/_layer/few_edges.py',
        '        if not width:',
        '        if False:',
        'tests/conv/all_convs/test_options.py -k without_channels',
    ),
    Mutation(
        'a first call along edges as they come',
        'conv/_layer/layer.py',
        'few = self.few_edges(x, edge_index, given, forms)\n            reason',
        'few = None\n            reason',
        f'{LAYERS_ALONG} -k checkpoints',
    ),
    # networks along edges as they come
    Mutation(
        'products of nodes along edges as they come',
        'mapping/few_edges.py',
        '+ num_nodes * products[1] >',
        '>',
        f'{EDGE_CONV_ALONG} -k products',
    ),
    Mutation(
        'edges that tie in a network along edges as they come',
        'cpu/few_edges/pieces.py',
        'own, ties + 1.0, ties)',
        'own, ties * 0.0 + 1.0, ties)',
        f'{NETWORKS_ALONG} -k tie',
    ),
    Mutation(
        'the reason against ties along edges as they come',
        'conv/_layer/layer.py',
        ' if few is None else None',
        '',
        'tests/conv/edge_conv/test_ties.py -k along_few',
    ),
    Mutation(
        'what is not finite along edges as they come',
        'ops/few_edges/networks.py',
        'if not all(t is None or is_finite(t) for t in found):',
        'if not found:',
        f'{NETWORKS_ALONG} -k not_finite',
    ),
    Mutation(
        'targets that are other nodes in a network along edges as they come',
        'conv/edge_conv.py',
        'pair = (x[0], None) if network.shared else x',
        'pair = (x[0], None)',
        f'{EDGE_CONV_ALONG} -k other_targets',
    ),
    # walks of one part
    Mutation(
        'a forced mapping of few edges',
        'cpu/few_edges/single_part.py',
        'is_cut = said.mapping is not None or said.group_sizes is not None',
        'is_cut = said.group_sizes is not None',
        SINGLE_PART,
    ),
    Mutation(
        'the adjoint of a mean of few edges',
        'cpu/few_edges/single_part.py',
        "kernels.forward_kernel(bound, self._tiling, 'sum')",
        'kernels.forward_kernel(bound, self._tiling, reduce)',
        f'{SINGLE_PART} -k parts',
    ),
    Mutation(
        'ids of edges of a walk of few',
        'cpu/few_edges/single_part.py',
        "('one part', self, with_ids)",
        "('one part', self)",
        SINGLE_PART,
    ),
    Mutation(
        'a mapping that was measured, of few edges',
        'cpu/few_edges/single_part.py',
        'return records.TABLE.is_empty() or records.mapping_of(Shape.of(graph.csr)) is None',
        'return True',
        SINGLE_PART,
    ),
    Mutation(
        'shapes that are collected, of few edges',
        'cpu/few_edges/single_part.py',
        'said.used_once or said.shapes is not None',
        'said.used_once',
        SINGLE_PART,
    ),
    Mutation(
        'rows of few edges',
        'cpu/few_edges/single_part.py',
        'work = graph.num_edge_ids + ROW_WORK',
        'work = graph.num_edge_ids + 0 * ROW_WORK',
        SINGLE_PART,
    ),
    # sorts by one kernel
    Mutation(
        'the sign that an edge is out of range, of few',
        'cpu/edges/sort_at_once.py',
        '        report[0] = 1\n        return\n',
        '        report[0] = 0\n        return\n',
        SORT,
    ),
    Mutation(
        'room for self-loops, of few edges',
        'cpu/edges/sort_at_once.py',
        'places[target] += loops < 0 or target != sources[edge]',
        'places[target] += 1',
        SORT,
    ),
    Mutation(
        'room for self-loops, of edges that come by target',
        'cpu/edges/sort_at_once.py',
        'place = kept + max(0, min(target, loops))',
        'place = kept + max(0, target)',
        SORT,
    ),
    Mutation(
        'the place of an edge in a transpose of few',
        'cpu/edges/sort_at_once.py',
        'position[place] = edge',
        'position[place] = place',
        SORT,
    ),
    Mutation(
        'ids of self-loops, of few edges',
        'cpu/edges/sort_at_once.py',
        'edge_id[place] = edges + row',
        'edge_id[place] = row',
        SORT,
    ),
    Mutation(
        'the weights of edges as they come',
        'cpu/few_edges/sums.py',
        'row = row * weights[edge]',
        'row = row * weights[0]',
        f'{ALONG} -k weighted_rows',
    ),
    Mutation(
        'weights behind the walk of a backward pass that is told how to run',
        'ops/few_edges/sums.py',
        "program, operands, reduce = WEIGHTED_NEIGHBOURS, {'edge_weight': weights.view(-1, 1)}, SUM",
        "program, operands, reduce = WEIGHTED_NEIGHBOURS, {'edge_weight': weights.view(-1, 1) * 0}, SUM",
        f'{ALONG} -k told_how',
    ),
)
