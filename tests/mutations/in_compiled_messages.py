"""What is broken in messages that are compiled."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

CHUNKED = 'tests/compiler/test_chunked.py'
VALUES = 'tests/ops/test_edge_values.py'
MATRICES = 'tests/compiler/test_matrices.py'
KEPT = 'tests/compiler/test_kept.py'
OWN = 'tests/compiler/test_own_convs.py'

PUBLISHED = 'tests/compiler/test_published_convs.py'
SELECTIONS = 'tests/compiler/test_selections.py'
NETWORKS = 'tests/compiler/test_edge_networks.py'

OF_COMPILED_MESSAGES = (
    Mutation(
        'what is stored is not what was computed last',
        'compiler/written.py',
        "{attribute!r}, {name}[{k}])')",
        "{attribute!r}, {name}[{k - 1}])')",
        f'{PUBLISHED} -k stored',
    ),
    Mutation(
        'numbers of rows that count from the end',
        'compiler/operations.py',
        'rows = torch.where(rows < 0, rows + table.shape[0], rows)',
        'rows = torch.where(rows < 0, rows + table.shape[0] - 1, rows)',
        f'{PUBLISHED} -k embedded',
    ),
    Mutation(
        'rows of tables by other numbers',
        'compiler/passes/tables.py',
        'if len(numbers) > 1:',
        'if False:',
        f'{PUBLISHED} -k categories',
    ),
    Mutation(
        'values kept for what a message reads of targets',
        'compiler/kept.py',
        'return _with_kept(message, found.values(), order)\n\n\ndef wordless',
        'return _with_kept(message, found.values(), in_order(message))\n\n\ndef wordless',
        f'{PUBLISHED} -k reductions_within',
    ),
    Mutation(
        'a part of rows that begins elsewhere',
        'compiler/selections.py',
        'count, row = len(places) // size, first // period',
        'count, row = len(places) // size, 0',
        SELECTIONS,
    ),
    Mutation(
        'parts of rows that reach into the next',
        'compiler/selections.py',
        'or column + size > period',
        'or False',
        SELECTIONS,
    ),
    Mutation(
        'a refusal that is never asked again',
        'conv/_known_calls.py',
        'return self.reason if self.guards.hold() else None',
        'return self.reason',
        f'{PUBLISHED} -k refusal',
    ),
    Mutation(
        'what a head needs once, for each channel',
        'compiler/lowering.py',
        'if walk.program.score is not None:',
        'if True:',
        f'{PUBLISHED} -k once_a_head',
    ),
    Mutation(
        'values that are returned, normalised twice',
        'compiler/plan.py',
        'output = returned_values_kept(_without_softmax_in_returned(output))',
        'output = _without_softmax_in_returned(output)',
        f'{NETWORKS} -k "others and normalisation"',
    ),
    Mutation(
        'wide values of any number of edges in memory',
        'compiler/plan.py',
        'return Plan.of(self.captured, keeps_wide=False)',
        'return Plan.of(self.captured)',
        f'{PUBLISHED} -k nothing_wide',
    ),
    Mutation(
        'few edges whose values are returned, by kernels',
        'mapping/few_edges.py',
        '(is_returned, MOST_OF_RETURNED),',
        '(False, MOST_OF_RETURNED),',
        f'{PUBLISHED} -k left_to_pyg',
    ),
    Mutation(
        'a mean that is a sum',
        'compiler/chunked.py',
        "if reduce == 'mean':",
        'if False:',
        f'{CHUNKED} -k mean',
    ),
    Mutation(
        'a minimum of the negative of its values',
        'compiler/chunked.py',
        '            out = -out\n',
        '            pass\n',
        f'{CHUNKED} -k min',
    ),
    Mutation(
        'dropout that draws again in backward',
        'ops/edge_values.py',
        'torch.Generator(device).manual_seed((self.seed + chunk.first) % 2**63)',
        'torch.default_generator',
        f'{VALUES} -k random_numbers',
    ),
    Mutation(
        'the edges of a chunk in the order of targets',
        'ops/edge_values.py',
        'if csr.edge_id is not None:\n            places[EDGE]',
        'if False:\n            places[EDGE]',
        f'{VALUES} -k values_and_gradients',
    ),
    Mutation(
        'the gradient of a maximum for all edges',
        'ops/edge_values.py',
        "winners if self.reduce == 'max' else None, found)",
        'None, found)',
        f'{VALUES} -k values_and_gradients',
    ),
    Mutation(
        'the gradient of the gradient of a result',
        'ops/edge_values.py',
        '                _add_to_result(work, chunk, of_chunk, winners, of_grad)\n',
        '                pass\n',
        f'{VALUES} -k again',
    ),
    Mutation(
        'losers of a maximum, once more',
        'ops/edge_values.py',
        "    if work.reduce == 'max':\n        rows = rows *",
        '    if False:\n        rows = rows *',
        f'{VALUES} -k gradients_of_gradients',
    ),
    Mutation(
        'weights given beside a matrix',
        'conv/_compiled.py',
        "kwargs = {**kwargs, 'edge_weight': None}",
        'kwargs = {**kwargs}',
        MATRICES,
    ),
    Mutation(
        'an aggregation of its own beside a matrix',
        'conv/_compiled.py',
        'if plain.aggregate is not MessagePassing.aggregate or isinstance(adjacency, EdgeIndex):',
        'if isinstance(adjacency, EdgeIndex):',
        MATRICES,
    ),
    Mutation(
        'a parametrization that is read while it is captured',
        'compiler/watch.py',
        'if is_parametrized(module, name):',
        'if False:',
        'tests/compiler/test_surroundings.py -k parametrization',
    ),
    Mutation(
        'an index of int32 for explainers',
        'conv/_compiled.py',
        'return original(self, fallback.adjacency_for_pyg(edge_index), size=size, **kwargs)',
        'return original(self, edge_index, size=size, **kwargs)',
        f'{OWN} -k int32',
    ),
    Mutation(
        'a capture that is deferred',
        'partial/rows/active.py',
        "is_map = func is F.linear and isinstance(args[0] if args else kwargs.get('input'), Tensor)",
        'is_map = func is F.linear',
        f'{CHUNKED} -k active_rows',
    ),
    Mutation(
        'values that are kept though nothing wider is computed of them',
        'compiler/kept.py',
        'if share * node.width <= above and _may_be_kept(node):',
        'if _may_be_kept(node):',
        f'{KEPT} -k narrow_is_not_kept',
    ),
    Mutation(
        'a linear map that is taken twice for a value that is kept',
        'compiler/kept.py',
        'if any(count > 1 for count in counts.values()):',
        'if False:',
        f'{KEPT} -k taken_twice',
    ),
    Mutation(
        'the most numbers of an edge',
        'compiler/forms.py',
        '_SHARES = (16, 8, 4, 2)',
        '_SHARES = (2,)',
        f'{KEPT} -k fewest',
    ),
    Mutation(
        'a product that one walk reads',
        'compiler/written.py',
        'return {key for key, count in counts.items() if count > 1}',
        'return {*counts}',
        'tests/compiler/test_at_once.py -k one_walk_reads',
    ),
    Mutation(
        'a map of a part of a row',
        'compiler/passes/contraction.py',
        'is_row = origin is not x and len(origin.shape) == 1 and places == positions.everything(origin.width)',
        'is_row = origin is not x and len(origin.shape) == 1',
        'tests/compiler/passes/test_contraction.py -k another_way',
    ),
    Mutation(
        'who watches what is scaled',
        'conv/_scaled_towers.py',
        "if type(scaler) is not DegreeScalerAggregation or why_not_as_it_is(scaler, 'aggr_module') is not None:",
        'if type(scaler) is not DegreeScalerAggregation:',
        'tests/conv/test_scaled_towers.py -k "who_watches or hook_that_goes"',
    ),
    Mutation(
        'the order in which drawn parameters are read',
        'conv/_scaled_towers.py',
        "why_not_linear(nn[0], 'nn') is not None or is_parametrized(nn[0]):",
        "why_not_linear(nn[0], 'nn') is not None:",
        'tests/conv/test_scaled_towers.py -k drawn',
    ),
    Mutation(
        'features that a reshape makes others of',
        'conv/_scaled_towers.py',
        'if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != conv.in_channels:',
        'if not isinstance(x, Tensor):',
        'tests/conv/test_scaled_towers.py -k takes_for_others',
    ),
    Mutation(
        'what nodes without edges are scaled by',
        'conv/_scaled_towers.py',
        "'attenuation': lambda degree, of_linear, of_log: of_log / torch.log(degree.clamp(min=1) + 1),",
        "'attenuation': lambda degree, of_linear, of_log: of_log / torch.log(degree + 1),",
        'tests/conv/test_scaled_towers.py -k "those_of_pyg and isolated"',
    ),
    Mutation(
        'a maximum of products as a network',
        'compiler/network_reading.py',
        "reduction.attributes['reduce'] == 'max' and _has_factor(reader.stages)",
        'False',
        f'{KEPT} -k maximum_of_products',
    ),
    Mutation(
        'a factor of the other end',
        'compiler/network_reading.py',
        'if factor.residency == SOURCE and factor.shape == node.shape:',
        'if factor.residency != EDGE and factor.shape == node.shape:',
        f'{KEPT} -k factors_of_targets',
    ),
    Mutation(
        'numbers of edges that are kept and not counted',
        'compiler/cost.py',
        'if id(node) not in returned and _is_made(node, walks)]',
        'if id(node) in returned and _is_made(node, walks)]',
        f'{KEPT} -k in_memory',
    ),
    Mutation(
        'a column whose gradient is summed in one line',
        'cpu/matrix_products.py',
        'if values.shape[1] < _LEAST_WIDTH:\n        _add',
        'if False:\n        _add',
        'tests/cpu/test_matrix_products.py -k digits',
    ),
    Mutation(
        'memory as a gradient that nobody gave',
        'ops/edge_mlp/autograd.py',
        'if all(grad is None for grad in grads):',
        'if False:',
        'tests/ops/test_edge_mlp_second_order.py -k nobody_gives',
    ),
)
