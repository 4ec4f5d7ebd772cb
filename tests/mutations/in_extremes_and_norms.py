"""What is broken in extremes of one edge, in normalisations over all edges, and in dimensions of one number."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_EXTREMES = 'tests/compiler/forms/test_extremes_of_one.py'
_ONES = 'tests/compiler/passes/test_ones.py'
_NORMALISED = 'tests/compiler/forms/test_normalised.py'

OF_EXTREMES_AND_NORMS = (
    Mutation(
        'all edges that tie',
        'compiler/forms/extremes_of_one.py',
        "value('where', value('eq', numbers, at_edges(first)), message, 0.0)",
        "value('where', value('eq', message, at_edges(extreme)), message, 0.0)",
        f'{_EXTREMES} -k first_edge',
    ),
    Mutation(
        'extremes at sources',
        'compiler/forms/extremes_of_one.py',
        "return value('as_sources', one) if leads_back else one",
        'return one',
        f'{_EXTREMES} -k "first_edge and ToBoth"',
    ),
    Mutation(
        'numbers of edges out of a source',
        'compiler/forms/extremes_of_one.py',
        "**({'leads_back': True} if leads_back else {})",
        '**{}',
        f'{_EXTREMES} -k "cannot_count and ToBoth"',
    ),
    Mutation(
        'rows without anything that exceeds the least number',
        'compiler/forms/extremes_of_one.py',
        "value('detach', value('relu', signed))",
        "value('detach', signed)",
        f'{_EXTREMES} -k not_finite',
    ),
    Mutation(
        'ties of few rows of networks',
        'compiler/networks/network.py',
        'return SO_FEW_EDGES if is_of_one(self.reduction) else None',
        'return None',
        f'{_EXTREMES} -k along_few_edges',
    ),
    Mutation(
        'ties of networks that have one edge each',
        'compiler/networks/network.py',
        "if self.reduce != 'max' or is_of_one(self.reduction):",
        "if self.reduce != 'max':",
        f'{_EXTREMES} -k weights_are_zero',
    ),
    Mutation(
        'numbers of edges in another order',
        'ops/numbers_of_edges.py',
        'found[slice(None) if csr.edge_id is None else csr.edge_id.long()]',
        'found[slice(None)]',
        f'{_EXTREMES} -k cannot_count',
    ),
    Mutation(
        'extremes that nothing is differentiated through',
        'compiler/plan/plan.py',
        'plan = self if torch.is_grad_enabled() else self._without_gradients_of_one',
        'plan = self',
        f'{_EXTREMES} -k no_gradients',
    ),
    Mutation(
        'extremes that are differentiated',
        'compiler/plan/plan.py',
        'plan = self if torch.is_grad_enabled() else self._without_gradients_of_one',
        'plan = self._without_gradients_of_one',
        f'{_EXTREMES} -k first_edge',
    ),
    Mutation(
        'normalisations that nobody reads',
        'compiler/capture/layers.py',
        'unread = _unread(guards.normalised, found)',
        'unread = []',
        f'{_NORMALISED} -k "statistics and Unread"',
    ),
    Mutation(
        'results that are for statistics alone',
        'compiler/plan/written.py',
        'count = len(output.args) - len(captured.stored) - captured.unread',
        'count = len(output.args) - len(captured.stored)',
        f'{_NORMALISED} -k "statistics and Pairs"',
    ),
    Mutation(
        'the order in which statistics move',
        'compiler/capture/layers.py',
        'if before is not None and not any(one is before for one in in_order(node)):',
        'if False:',
        f'{_NORMALISED} -k none_follows',
    ),
    Mutation(
        'reductions to sources within what is kept',
        'compiler/forms/to_sources.py',
        """if not any(node.op == 'reduce_to_sources' for node in all_in_order(output)):""",
        """if not any(node.op == 'reduce_to_sources' for node in computed_on_edges(output)):""",
        f'{_EXTREMES} -k within_what_is_kept',
    ),
    Mutation(
        'normalisations of returned values',
        'compiler/plan/plan.py',
        'if any(map(_is_by_batch, plan._computed_again)):',
        'if False:',
        f'{_NORMALISED} -k returned',
    ),
    Mutation(
        'short rows that are written out',
        'compiler/passes/small_sums.py',
        'MOST_MAPPED = 2',
        'MOST_MAPPED = 8',
        'tests/compiler/test_edge_networks.py -k narrow',
    ),
    Mutation(
        'normalisations by what was seen before',
        'compiler/plan/plan.py',
        'return norm.training or norm.running_mean is None',
        'return True',
        f'{_NORMALISED} -k "normalised_for_sums or move_before_backward"',
    ),
    Mutation(
        'normalisations of values in memory',
        'compiler/plan/plan.py',
        'return Plan._of_passes(captured, without, more, keeps_wide, normalised_kept)',
        'pass',
        f'{_NORMALISED} -k "statistics and Gated"',
    ),
    Mutation(
        'what is mapped beside ends',
        'compiler/forms/normalised.py',
        'return [term.args[0] if term.op ==',
        'return [] and [term.args[0] if term.op ==',
        f'{_NORMALISED} -k what_is_kept',
    ),
    Mutation(
        'a dimension of one number',
        'compiler/passes/ones.py',
        'return len(node.shape) > 1 and all(size == 1 for size in node.shape[:-1])',
        'return False',
        f'{_ONES} -k have_kernels',
    ),
    Mutation(
        'maps of maps that are more products',
        'compiler/networks/reading.py',
        'return wide * features <= between * (wide + features)',
        'return True',
        f'{_ONES} -k map_of_a_map',
    ),
)
