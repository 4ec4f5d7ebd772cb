"""What is broken in values of edges that walks write, in writes and settings of messages, and in narrow products."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_VALUES = 'tests/ops/test_values_along_edges.py'
_SETTINGS = 'tests/compiler/capture/test_settings.py'
_WRITES = 'tests/compiler/test_writes_and_settings.py'
_WEIGHTS = 'tests/compiler/test_returned_weights.py'
_WORDS = 'tests/cpu/vectors/test_elementary.py'
_EQUATIONS = 'tests/compiler/functions/test_equations.py'
_SCORES = 'tests/compiler/passes/test_maps_to_one.py'

OF_VALUES_OF_EDGES = (
    Mutation(
        'scores by networks that are networks',
        'compiler/forms/form.py',
        '        lambda: _values_of_products(message),\n',
        '',
        f'{_SCORES} -k scores_are_walks',
    ),
    Mutation(
        'values in memory that each walk maps again',
        'compiler/forms/form.py',
        "        raise Refused('maps of values in memory')\n",
        '        pass\n',
        'tests/compiler/test_shared_networks.py -k "maps_are_taken_once and Moved"',
    ),
    Mutation(
        'what was aggregated before written another way',
        'compiler/ir/values.py',
        'if on_edges and is_brought(node):',
        'if False:',
        f'{_SCORES} -k aggregated_before',
    ),
    Mutation(
        'what edges gather again taken for values of nodes',
        'compiler/forms/cost.py',
        "if node.op == 'degree' or (of_aggregated and not is_on_edges):",
        "if node.op == 'degree' or of_aggregated:",
        'tests/compiler/forms/test_cost.py',
    ),
    Mutation(
        'gradients of what is added that are walked',
        'ops/values_along_edges.py',
        'if _is_of_factor(of, factor)])',
        'if False])',
        f'{_VALUES} -k saves_nothing',
    ),
    Mutation(
        'gradients that are handed on though they are scaled',
        'ops/values_along_edges.py',
        "return sorted(name for _, name in read) == sorted(['grad', factor]) and all(word is None for word, _ in read)",
        'return True',
        f'{_VALUES} -k values_and_gradients',
    ),
    Mutation(
        'edges that were written to since',
        'ops/values_along_edges.py',
        'ctx.save_for_backward(work.edges.token, *saved)',
        'ctx.save_for_backward(work.edges.token.clone(), *saved)',
        f'{_VALUES} -k may_not_write',
    ),
    Mutation(
        'a batch of gradients whose ones are a batch',
        'ops/values_along_edges.py',
        'ones = tensors[0].new_ones(self.edges.num_edges, self.width)',
        'ones = grad.new_ones(self.edges.num_edges, self.width)',
        f'{_VALUES} -k batches',
    ),
    Mutation(
        'values of edges of rows that are deferred',
        'compiler/plan/written.py',
        "f'{name!r}: all_rows({self._operand(value)})'",
        "f'{name!r}: {self._operand(value)}'",
        'tests/compiler/forms/test_along_edges.py -k within_active',
    ),
    Mutation(
        'settings of a class with a get of its own',
        'compiler/capture/settings.py',
        "'get', None) is not dict.get:",
        "'get', None) is None:",
        f'{_SETTINGS} -k left_to_pyg',
    ),
    Mutation(
        'weights in the shape that walks give',
        'compiler/forms/weighed.py',
        'weights.view(weights.shape[0], *self.weight_shape)',
        'weights',
        f'{_WEIGHTS} -k outputs_weights',
    ),
    Mutation(
        'weights beside other values that are returned',
        'compiler/forms/weighed.py',
        "raise Refused('values of edges that are no weights of a reduction')",
        'continue',
        f'{_WEIGHTS} -k outputs_weights',
    ),
    Mutation(
        'writes to features that the user holds',
        'compiler/symbols/sharing.py',
        '[one for one in symbol.sharing if one.is_given and not one.is_copy]',
        '[]',
        f'{_WRITES} -k other_writes',
    ),
    Mutation(
        'writes to what shares its memory',
        'compiler/symbols/sharing.py',
        "'expand') or function in _FUNCTIONS or result.is_view:",
        "'expand') or result.is_view:",
        f'{_WRITES} -k other_writes',
    ),
    Mutation(
        'what a message has written, for aggregate',
        'compiler/capture/layers.py',
        'symbols.setdefault(name, symbol_of(name, given[name]))',
        'symbol_of(name, given[name])',
        f'{_WRITES} -k SeenByAggregate',
    ),
    Mutation(
        'a mask whose dimensions are the last',
        'compiler/symbols/symbol.py',
        'shape=(*shape, *[1] * (len(inner) - len(shape)))',
        'shape=(*[1] * (len(inner) - len(shape)), *shape)',
        f'{_WRITES} -k Mask',
    ),
    Mutation(
        'keys that came or went',
        'compiler/capture/settings.py',
        "        guards.add(keys, 'names', keys.names)\n",
        '',
        f'{_SETTINGS} -k keys_are_read',
    ),
    Mutation(
        'settings that came later',
        'compiler/capture/settings.py',
        '            guards.absent.append((held, name))\n',
        '',
        f'{_SETTINGS} -k may_come',
    ),
    Mutation(
        'code of enumerations',
        'compiler/capture/surroundings.py',
        'return all(found.__module__ in _OF_ENUMS',
        'return any(True',
        f'{_SETTINGS} -k code_of_their_own',
    ),
    Mutation(
        'axes that a pattern turns',
        'compiler/functions/named_axes.py',
        '        x = x.permute(order)\n',
        '        pass\n',
        'tests/compiler/functions/test_named_axes.py -k extreme',
    ),
    Mutation(
        'settings that changed',
        'compiler/capture/settings.py',
        '        guards.add(owner, key, found)\n        if holds_settings',
        '        if holds_settings',
        f'{_SETTINGS} -k settings_are_read',
    ),
    Mutation(
        'settings of a class that gives others',
        'compiler/capture/settings.py',
        'if dict.get(held, key) is not found:',
        'if False:',
        f'{_WRITES} -k left_to_pyg',
    ),
    Mutation(
        'an aggr that PyG does not pass on',
        'compiler/capture/layers.py',
        "aggregate.pop('aggr', None)",
        'pass',
        f'{_WRITES} -k aggr_is_not',
    ),
    Mutation(
        'the sign of a normal distribution',
        'program/expansion.py',
        'positive(x, 1.0 - beyond, beyond)',
        'positive(x, beyond, 1.0 - beyond)',
        f'{_WORDS} -k normal_cdf',
    ),
    Mutation(
        'gradients of features that follow one another, for those of loops',
        'ops/walked_products.py',
        'of_loops = product_of(of_own, turned) if needed.loops else None',
        'of_loops = product_of(of_edges[: len(of_own)], turned) if needed.loops else None',
        'tests/conv/gat_conv/test_parity.py -k edge',
    ),
    Mutation(
        'numbers of edges alone, without a type of their own',
        'compiler/forms/chunked.py',
        'seed, self.message.dtype',
        'seed',
        f'{_WRITES} -k WideNumbersOfEdges',
    ),
    Mutation(
        'results to the last node of another side',
        'conv/_compiled/call.py',
        'return counts[source_dim], counts[1 - source_dim]',
        'return counts[1 - source_dim], counts[source_dim]',
        'tests/compiler/test_unsized_reductions.py -k each_call_s',
    ),
    # equations, and what runs along few edges
    Mutation(
        'an equation by a turned matrix',
        'compiler/functions/equations.py',
        'y if second[0] == first[-1] else y.t()',
        'y',
        _EQUATIONS,
    ),
    Mutation(
        'an equation by a wide matrix of each edge',
        'compiler/functions/equations.py',
        'if is_by_matrix and product.node.width > MOST_OF_SMALL:',
        'if False:',
        _EQUATIONS,
    ),
    Mutation(
        'dimensions in the order of another value',
        'compiler/functions/equations.py',
        "if ''.join(found) != term:",
        'if False:',
        _EQUATIONS,
    ),
    Mutation(
        'values of few edges that kernels update',
        'conv/_compiled/compiled_conv.py',
        ' or call.edges.num_edges < fewest_edges_of(plan, call)',
        '',
        'tests/compiler/forms/test_chunked.py -k updated_by_pyg',
    ),
    Mutation(
        'chunks that compute much',
        'compiler/plan/fewest.py',
        'chunked_reductions or is_chunked else 0',
        'chunked_reductions else 0',
        'tests/compiler/forms/test_chunked.py -k values_on_chunks',
    ),
)
