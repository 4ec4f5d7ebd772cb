"""What is broken in modules that make edges anew of those that they are given, and read numbers of them."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_REMADE = 'tests/conv/modules/test_remade_edges.py'
_OWN = f'{_REMADE} -k "own_code and'
_CHOSEN = 'tests/conv/modules/test_chosen_edges.py'
_OF_CHOSEN = f'{_CHOSEN} -k "own_code and any and'
_NUMBERS = 'tests/conv/modules/test_read_numbers.py'
_KNOWN = 'tests/conv/modules/test_known_nodes.py'
_CALLS = 'tests/conv/modules/test_calls.py'
_TRACED = 'tests/conv/modules/test_traced_edges.py'
_SEVERAL = 'tests/conv/modules/test_several_sets.py'

OF_REMADE_EDGES = (
    Mutation(
        'edges as they were given',
        'conv/_modules.py',
        'sets, given = captured.remade_by.of_call(call.run(captured.target_row))',
        '_, given = captured.remade_by.of_call(call.run(captured.target_row))',
        f'{_OWN} Normalised"',
    ),
    Mutation(
        'several sets of edges as the first',
        'compiler/remaking.py',
        'if self._read.setdefault(row, made) is made or self.reads_several:',
        'if self._read.setdefault(row, made) is not None:',
        f'{_SEVERAL} -k "own_code and any and ThereAndBack"',
    ),
    Mutation(
        'values of edges that are no longer there',
        'compiler/remaking.py',
        'if not read.isdisjoint(given):',
        'if False:',
        f'{_REMADE} -k of_edges_before',
    ),
    Mutation(
        'no edges that are left',
        'conv/_modules.py',
        'if any(edge_index.shape[1] == 0 for edge_index in sets) and not _runs_without_edges(plan, sets):',
        'if False:',
        f'{_REMADE} -k are_left',
    ),
    Mutation(
        'a number of nodes that is that of one call',
        'compiler/remade.py',
        'else self._numbers[what]',
        'else 30',
        f'{_REMADE} -k of_its_own_edges',
    ),
    Mutation(
        'edges that are traced as they were given',
        'conv/_traced_modules.py',
        'if remade is not None:',
        'if False:',
        f'{_TRACED} -k "own_code and LoopsBehind"',
    ),
    Mutation(
        'values that are more than edges',
        'compiler/remade.py',
        'values[name].shape != wanted or',
        '',
        f'{_CHOSEN} -k more_edges',
    ),
    Mutation(
        'as many numbers as there were edges before',
        'compiler/remaking.py',
        'if not is_made_of and counts not in (None, *counted):',
        'if False:',
        f'{_CHOSEN} -k there_were_before',
    ),
    Mutation(
        'numbers that are drawn by a capture, too',
        'compiler/remaking.py',
        'enabled=draw is not None',
        'enabled=False',
        f'{_CHOSEN} -k that_are_drawn',
    ),
    Mutation(
        'numbers that are drawn once',
        'compiler/remaking.py',
        'object() if is_drawn else None',
        'None',
        f'{_NUMBERS} -k floating_and_drawn',
    ),
    Mutation(
        'gradients that nobody asked for',
        'compiler/remade.py',
        'found.detach() if one.is_detached else found',
        'found',
        f'{_OF_CHOSEN} WithoutGradients"',
    ),
    Mutation(
        'views of what is written into',
        'compiler/remaking.py',
        'symbol.is_given = True',
        'pass',
        f'{_CHOSEN} -k "own_code and Written"',
    ),
    Mutation(
        'kinds of edges as their ends',
        'compiler/remaking.py',
        'if function.__name__ not in _MOVING or not given:',
        'if not given:',
        f'{_OF_CHOSEN} OfEnds"',
    ),
    Mutation(
        'ends that a function of torch sums up',
        'compiler/symbols.py',
        'if str(refusal) != BY_OTHERS and any(symbol.rows',
        'if any(symbol.rows',
        f'{_OF_CHOSEN} SharesOfBothEnds"',
    ),
    Mutation(
        'other ends of edges that were not chosen',
        'compiler/remade.py',
        'next((whole.row_of(row) for whole in wholes_of(some)), some)',
        'None',
        f'{_OF_CHOSEN} OfOneEnd"',
    ),
    Mutation(
        'ends of edges as objects that differ',
        'compiler/edge_tensors.py',
        'return True if other is None else recorded_of_edges(torch.ne, (self, other), {})',
        'return True',
        f'{_CHOSEN} -k message_compares',
    ),
    Mutation(
        'numbers of another call',
        'compiler/watch.py',
        'return all(run.number(made) == number for made, number in self.numbers.items())',
        'return True',
        f'{_NUMBERS} -k each_number',
    ),
    Mutation(
        'edges that are no tensor',
        'compiler/leaves.py',
        'return issubclass(found.kind, kinds)',
        'return False',
        f'{_CALLS} -k "what_was_given and tensor"',
    ),
    Mutation(
        'two rows as a tensor',
        'compiler/modules.py',
        'return dataclasses.replace(edges, kind=kind)',
        'return edges',
        f'{_CALLS} -k "what_was_given and tuple"',
    ),
    Mutation(
        'a plan for other numbers of nodes',
        'compiler/remaking.py',
        'self._read_number(self._number(Rows(NUM_TARGETS)))',
        'pass',
        f'{_KNOWN} -k each_number_of_nodes',
    ),
    Mutation(
        'as many nodes as the first embedding has',
        'conv/_modules.py',
        'tried[0][0].is_told == (sets == ALL_EMBEDDED)',
        'True',
        f'{_KNOWN} -k "own_code and UsersAndItems"',
    ),
    Mutation(
        'ones onto which nodes are reduced as zeros',
        'compiler/beside_edges.py',
        "'ones': 1.0,",
        "'ones': 0.0,",
        f'{_KNOWN} -k "own_code and OfEachNode"',
    ),
    Mutation(
        'other edges as many',
        'compiler/remaking.py',
        'if one is not other and not (self._counts_given(one) and self._counts_given(other)):',
        'if False:',
        f'{_CHOSEN} -k ComparesChosen',
    ),
    Mutation(
        'gradients of matrices that have none',
        'compiler/sparse_matrices.py',
        "self._values = values if torch.is_grad_enabled() else made('detach', values)",
        'self._values = values',
        'tests/conv/modules/test_sparse_matrices.py -k own_code',
    ),
    Mutation(
        'a matrix that is not transposed',
        'compiler/sparse_matrices.py',
        'return SparseMatrix(self._columns, self._rows, self._values)',
        'return self',
        'tests/conv/modules/test_sparse_matrices.py -k own_code',
    ),
    Mutation(
        'numbers that values tell, in a trace',
        'conv/_traced_modules.py',
        'if captured.guards.numbers:',
        'if False:',
        f'{_TRACED} -k "decide and Branches"',
    ),
    Mutation(
        'what is made without gradients, in a trace',
        'compiler/traced_edges.py',
        '".detach()" if made.is_detached else ""',
        '""',
        f'{_TRACED} -k "no_gradients and Without"',
    ),
    Mutation(
        'memory of edges that a trace writes to',
        'graph/remade_edges.py',
        'edge_index.clone() if self._copies else edge_index',
        'edge_index',
        f'{_TRACED} -k may_be_written_to',
    ),
    Mutation(
        'edges of traces that are looked at',
        'graph/remade_edges.py',
        'if found is None or not torch.equal(found, edge_index):',
        'if found is None:',
        'tests/graph/test_remade_edges.py -k look_alike',
    ),
    Mutation(
        'forms along the first set of edges',
        'compiler/written.py',
        'number = set_of_edges(node)',
        'number = 0',
        f'{_SEVERAL} -k "own_code and any and Networks"',
    ),
    Mutation(
        'degrees in another set',
        'compiler/sets_of_edges.py',
        "_GATHERED = 'of_sources', 'of_targets', 'degree'",
        "_GATHERED = 'of_sources', 'of_targets'",
        f'{_SEVERAL} -k "own_code and any and OneBehind"',
    ),
    Mutation(
        'counts of edges behind a sum of another set',
        'compiler/passes/after_sum.py',
        "{'edges': number} if number else {}",
        '{}',
        f'{_SEVERAL} -k "own_code and any and Biased"',
    ),
    Mutation(
        'values of two sets of edges',
        'compiler/sets_of_edges.py',
        'if ends[numbers[together.of(made)]].setdefault(made.end, made) is not made:',
        'if ends[numbers[together.of(made)]].setdefault(made.end, made) is None:',
        f'{_SEVERAL} -k "two_sets and AtOnce"',
    ),
    Mutation(
        'values of edges of another set',
        'compiler/sets_of_edges.py',
        "elif node.op == 'input' and node.residency == EDGE:",
        'elif False:',
        f'{_SEVERAL} -k "own_code and any and WeighedAlone"',
    ),
    Mutation(
        'nodes without edges of another set',
        'compiler/written.py',
        "expression = f'with_edges_only({expression}, {self._edges_of_set(node)}, {node.residency!r})'",
        "expression = f'with_edges_only({expression}, edges, {node.residency!r})'",
        f'{_SEVERAL} -k edges_of_one_set',
    ),
    Mutation(
        'a set without edges',
        'conv/_modules.py',
        'are_there and not plan.captured.asks_for_edges and all',
        'are_there and all',
        f'{_SEVERAL} -k asks_for_edges',
    ),
)
