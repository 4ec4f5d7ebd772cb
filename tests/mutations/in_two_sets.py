"""What is broken in modules whose edges lead between two sets of nodes, and in softmaxes that other ends read."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_TWO_SETS = 'tests/conv/modules/test_two_sets.py'
_ISOLATED = 'tests/conv/modules/test_isolated_nodes.py'
_OWN = f'{_TWO_SETS} -k "own_code'

OF_TWO_SETS = (
    Mutation(
        'rows of nodes that the other ends of edges name',
        'compiler/functions/views.py',
        'if x.rows not in (index.rows, NUM_OTHERS):',
        'if False:',
        f'{_OWN} and LikedBy"',
    ),
    Mutation(
        'sums at the other ends',
        'compiler/functions/scattering.py',
        'if index.rows != x.rows:',
        'if False:',
        f'{_TWO_SETS} -k sums_at_the_wrong_ends',
    ),
    Mutation(
        'sums of sources as those of targets',
        'compiler/functions/leaves.py',
        "value('as_sources', node) if index.rows == NUM_SOURCES else node",
        'node',
        f'{_OWN} and Hyperedges"',
    ),
    Mutation(
        'rows of sources as many as there are targets',
        'compiler/plan/called.py',
        'rows = edges.num_targets if residency == TARGET else edges.num_sources',
        'rows = edges.num_targets',
        f'{_OWN} and Counted"',
    ),
    Mutation(
        'numbers of nodes in the order of targets',
        'conv/_modules/calls.py',
        'return self.num_nodes[target_row - 1], self.num_nodes[-target_row]',
        'return self.num_nodes[0], self.num_nodes[-1]',
        f'{_OWN} and ToSenders"',
    ),
    Mutation(
        'nodes of a row that are looked at together',
        'conv/_modules/module.py',
        'zip([call.edge_index] if len(call.num_nodes) == 1 else call.edge_index, call.num_nodes, strict=True)',
        'zip([call.edge_index], call.num_nodes[:1], strict=True)',
        f'{_TWO_SETS} -k names_no_node',
    ),
    Mutation(
        'a kind of calls that forgets which nodes',
        'conv/_compiled/plans.py',
        'item.of_row,',
        'None,',
        f'{_TWO_SETS} -k larger_set',
    ),
    Mutation(
        'sets of nodes that are tried but once',
        'conv/_modules/calls.py',
        'TWO_SETS: tuple[Sets, ...] = (0, 1), (1, 0)',
        'TWO_SETS: tuple[Sets, ...] = ((0, 1),)',
        f'{_TWO_SETS} -k larger_set',
    ),
    Mutation(
        'why there is no plan for nodes that it does not read',
        'conv/_modules/module.py',
        'if len(one[0].num_nodes) > 1 and one[1] != OTHER_ENDS]',
        'if False]',
        f'{_TWO_SETS} -k the_reason_is',
    ),
    Mutation(
        'a softmax of targets that is one of sources',
        'compiler/forms/to_sources.py',
        'output = _without_softmax(output)',
        'pass',
        f'{_TWO_SETS} -k "sources_add_up or WeighedBothWays"',
    ),
    Mutation(
        'what is read within values in memory',
        'compiler/forms/kept.py',
        'takers = [node for node in order if keeps_wide',
        'takers = [node for node in in_order(output) if keeps_wide',
        f'{_OWN} and SentInShares"',
    ),
    Mutation(
        'a softmax of the rows of a table',
        'compiler/passes/tables.py',
        "_OF_EDGES = (*OF_ALL_EDGES, 'lookup'",
        "_OF_EDGES = ('softmax', 'reduce', 'batch_norm', 'lookup'",
        f'{_TWO_SETS} -k rows_of_a_table',
    ),
    Mutation(
        'degrees of one set in place of the other',
        'compiler/capture/layers.py',
        "return any(node.attributes.get('side') == TARGET for node in found)",
        'return False',
        f'{_TWO_SETS} -k degrees_of_other_nodes',
    ),
    Mutation(
        'nodes without edges, of what edges compute of degrees',
        'compiler/ir/untouched.py',
        'if id(node) not in seen and id(node) not in of_all and node.op not in REDUCTIONS:',
        "if id(node) not in seen and id(node) not in of_all and node.op not in (*REDUCTIONS, 'div'):",
        f'{_ISOLATED} -k "gradients_are_finite"',
    ),
    Mutation(
        'nodes without edges that are replaced for all',
        'compiler/ir/untouched.py',
        "(node.op == 'input' and not self.gathered_alone)",
        "node.op == 'input'",
        f'{_ISOLATED} -k "gradients_are_finite"',
    ),
    Mutation(
        'degrees of nodes without edges',
        'compiler/ir/untouched.py',
        "is_one = node.op in ('of_sources', 'of_targets') or (",
        'is_one = (',
        f'{_ISOLATED} -k "gradients_are_finite"',
    ),
    Mutation(
        'nodes without edges, of what is gathered of arguments',
        'conv/_modules/module.py',
        'row = row._replace(gathers_apart=True)',
        'row = row._replace(gathers_apart=False)',
        f'{_ISOLATED} -k "gradients_are_finite"',
    ),
    Mutation(
        'what edges compute, at their other ends, taken for what nodes do',
        'compiler/forms/to_sources.py',
        "return value(f'as_{end}s', node)",
        "return value(f'of_{end}s', node, **index.along)",
        f'{_ISOLATED} -k lead_back',
    ),
    Mutation(
        'a softmax of sources of what nodes decide',
        'compiler/passes/softmax.py',
        "if node.op == 'softmax_of_sources' and args[0].residency != EDGE:",
        'if False:',
        f'{_OWN} and SharesOfShares"',
    ),
    Mutation(
        'a softmax of softmaxes that is taken apart alone',
        'compiler/passes/softmax.py',
        "if node.op == 'softmax' and (ids is None or id(node) in ids):",
        "if node.op == 'softmax' and is_same and (ids is None or id(node) in ids):",
        'tests/compiler/passes -k of_softmaxes',
    ),
)
