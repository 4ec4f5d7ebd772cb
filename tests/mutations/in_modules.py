"""What is broken in modules that gather and reduce along edges themselves."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_MODULES = 'tests/conv/modules'
_VALUES = 'tests/ops/test_values_along_edges.py'

OF_MODULES = (
    Mutation(
        'edges that lead the other way',
        'conv/_modules.py',
        'call.sizes(target_row), FLOWS[1 - target_row]',
        'call.sizes(target_row), FLOWS[0]',
        f'{_MODULES} -k "own_code and Equivariant"',
    ),
    Mutation(
        'values of nodes that are computed for each end',
        'compiler/views.py',
        "return value(f'of_{end}s', node, **index.along)",
        'return dataclasses.replace(node, residency=end)',
        f'{_MODULES} -k "own_code and (Recurrent or Normalised or WithinOthers)"',
    ),
    Mutation(
        'dropouts of nodes that are one',
        'compiler/passes/subexpressions.py',
        "if node.op in ('dropout', 'dropout_of_nodes') or (",
        "if node.op == 'dropout' or (",
        f'{_MODULES} -k dropouts_of_the_same',
    ),
    Mutation(
        'a sum onto what is there that forgets it',
        'compiler/scattering.py',
        "return added if x.constant == 0.0 else made('add', x, added)",
        'return added',
        f'{_MODULES} -k "own_code and Onto"',
    ),
    Mutation(
        'a factor of what is added',
        'compiler/scattering.py',
        "return _onto(x, added if alpha == 1 else made('mul', added, alpha))",
        'return _onto(x, added)',
        f'{_MODULES} -k "own_code and Onto"',
    ),
    Mutation(
        'a maximum of edges alone where there is something',
        'compiler/scattering.py',
        'if reduce not in _REDUCTIONS or x.constant is None or (',
        'if reduce not in _REDUCTIONS or (',
        f'{_MODULES} -k what_has_no_form',
    ),
    Mutation(
        'targets without edges that keep nothing',
        'compiler/scattering.py',
        'if not include_self and x.constant == 0.0:',
        'if not include_self:',
        f'{_MODULES} -k "any_shape and Extremes"',
    ),
    Mutation(
        'numbers that are written to and stay constant',
        'compiler/sharing.py',
        'symbol.node, symbol.constant = result.node, result.constant',
        'symbol.node = result.node',
        f'{_MODULES} -k "own_code and Twice"',
    ),
    Mutation(
        'what shares memory that was written to',
        'compiler/sharing.py',
        'other.is_changed = other is not symbol',
        'other.is_changed = False',
        'tests/compiler/test_writes_and_settings.py -k other_writes',
    ),
    Mutation(
        'numbers of nodes as numbers',
        'compiler/symbols.py',
        'if any(isinstance(argument, Rows) for argument in _flat((*args, *attributes.values()))):',
        'if False:',
        'tests/compiler/test_sizes.py -k number_of_rows',
    ),
    Mutation(
        'numbers of nodes that are those of one call',
        'conv/_module_calls.py',
        'return item if row is None else NumNodes(row) if len(counts.nodes) > 1 else Rows(NUM_TARGETS)',
        'return item',
        f'{_MODULES} -k other_numbers',
    ),
    Mutation(
        'what is given back as a copy',
        'compiler/modules.py',
        'if symbol is out and not is_constant(symbol)',
        'if False',
        f'{_MODULES} -k given_back',
    ),
    Mutation(
        'few edges of another device',
        'conv/_module_calls.py',
        'return is_plain and 0 < edges.shape[-1] < self.fewest',
        'return is_plain',
        f'{_MODULES} -k few_edges_run',
    ),
    Mutation(
        'what is compiled within what is captured',
        'compiler/watch.py',
        "return kind.plain if getattr(kind, 'is_captured_whole', False) else kind",
        'return kind',
        f'{_MODULES} -k captured_with_what_holds_them',
    ),
    Mutation(
        'plans that copies take along',
        'conv/_planned.py',
        'if name not in self._of_calls}',
        "if name != ''}",
        f'{_MODULES} -k copies_pickles',
    ),
    Mutation(
        'sums over channels in another order',
        'compiler/along_edges.py',
        'is_in_order = channels > 1 and (places.reshape(-1) == range(heads * channels)).all()',
        'is_in_order = channels > 1',
        'tests/compiler/test_along_edges.py -k another_order',
    ),
    Mutation(
        'factors that differ within a sum',
        'compiler/channel_sums.py',
        'is_same = len(factor.shape) == len(x.shape) and all(factor.shape[d - 1] == 1 for d in dims)',
        'is_same = len(factor.shape) == len(x.shape)',
        'tests/compiler/test_along_edges.py -k another_order',
    ),
    Mutation(
        'batches of gradients of sums over channels',
        'ops/values_along_edges.py',
        'return found.view(-1, plan.heads, plan.channels).sum(-1) if self.is_of_heads else found',
        'return found',
        f'{_VALUES} -k batches',
    ),
    Mutation(
        'lists of the caller that are copies',
        'compiler/modules.py',
        "Unwritten(name, parts, 'the caller')",
        'parts',
        f'{_MODULES} -k a_list_of_the_caller',
    ),
    Mutation(
        'nodes that are counted from the end',
        'conv/_modules.py',
        'if low < 0 or high >= nodes:',
        'if False:',
        f'{_MODULES} -k counted_from_the_end',
    ),
    Mutation(
        'numbers that a capture draws',
        'compiler/capture.py',
        'if has_rows and not any(others):',
        'if False:',
        'tests/compiler/test_sizes.py -k draws_no_numbers',
    ),
    Mutation(
        'numbers of infinity that are multiplied with a count',
        'compiler/leaves.py',
        'math.isfinite(src.constant) and ',
        '',
        f'{_MODULES} -k "any_shape and Constants"',
    ),
    Mutation(
        'nodes without edges among the largest scores',
        'compiler/scattering.py',
        "_onto_constant(lowest, targets, x, 'amax').node",
        "scatter(x, targets, 0, Rows(targets.rows), 'max').node",
        f'{_MODULES} -k below_zero',
    ),
    Mutation(
        'dropout of whole channels',
        'compiler/dropouts.py',
        'if x.dim() > 2:',
        'if False:',
        'tests/compiler/test_operators.py -k "whole and channels"',
    ),
)
