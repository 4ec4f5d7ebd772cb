"""What is broken in calls of compiled layers along few edges, and in what they make of edges before."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

OF_COMPILED_CALLS = (
    Mutation(
        'wide values that are taken for a basis',
        'compiler/forms/bases.py',
        '_OF_A_BASIS = 4',
        '_OF_A_BASIS = 0',
        'tests/compiler/forms/test_bases.py -k no_basis',
    ),
    Mutation(
        'means that leave out what was there',
        'compiler/functions/scattering.py',
        "made('add', _count(_of_whole_rows(index, src), src), 1.0)",
        '_count(_of_whole_rows(index, src), src)',
        'tests/conv/modules/test_numbers.py -k Onto',
    ),
    Mutation(
        'methods of another layer that are not watched',
        'compiler/capture/watch.py',
        'return method_of(guards.watched(found.__self__), found.__func__, guards)',
        'return found',
        'tests/compiler/capture/test_surroundings.py -k methods_that_a_layer_holds',
    ),
    Mutation(
        'few edges that are told of other widths',
        'conv/_compiled/known_calls.py',
        'shapes.append(part.shape[1:] if isinstance(part, Tensor) else None)',
        'shapes.append(None)',
        'tests/conv/compiled/test_known_calls.py -k looked_at_again',
    ),
    Mutation(
        'few edges that are told in another mode',
        'conv/_compiled/known_calls.py',
        'return identities_of(layer), shapes',
        'return (), shapes',
        'tests/conv/compiled/test_known_calls.py -k looked_at_again',
    ),
    Mutation(
        'a limit of few edges that several copies do not share',
        'conv/_compiled/known_calls.py',
        'return (plan.fewest_edges - 1) // count + 1 if plan.are_sums else 0',
        'return plan.fewest_edges if plan.are_sums else 0',
        'tests/mapping/test_few_edges.py -k copies',
    ),
    Mutation(
        'sets of edges that take nothing',
        'mapping/work.py',
        ' + 440 * (work.sets - 1)',
        '',
        'tests/mapping/test_few_edges.py -k "sets or however_few"',
    ),
    Mutation(
        'classes that are asked for more than an attribute',
        'compiler/capture/surroundings.py',
        'if type(found) is type and name in read.for_attributes and not',
        'if type(found) is type and not',
        'tests/compiler/capture/test_surroundings.py -k cannot_be_guarded',
    ),
    Mutation(
        'few edges of calls of no kind',
        'conv/_compiled/compiled_conv.py',
        'if not isinstance(plan, str) and call.edges.num_edges < fewest_edges_of(plan, call):',
        'if False:',
        'tests/conv/compiled/test_known_calls.py -k few_edges_run',
    ),
    Mutation(
        'weights that need a gradient',
        'ops/few_edges/sums.py',
        'or (weights.requires_grad and torch.is_grad_enabled())',
        'or False',
        'tests/compiler/test_convs.py -k "outputs_and_gradients and PDNConv and random"',
    ),
    Mutation(
        'loops among edges whose norms a kernel computes',
        'cpu/edges/edge_norms.py',
        'if with_loops == 0 or targets[edge] != sources[edge]:',
        'if with_loops == 0 or targets[edge] >= 0:',
        'tests/cpu/edges/test_edge_norms.py -k self-loops',
    ),
    Mutation(
        'the edges themselves in what is kept with them',
        'conv/_compiled/prepared_edges.py',
        'parts = edge_index, *parts[1:]',
        'parts = edge_index[:0], *parts[1:]',
        'tests/conv/compiled/test_prepared_edges.py -k "norms and LGConv"',
    ),
    Mutation(
        'the first call of a compiled layer',
        'compiler/plan/called.py',
        'is_known = note is not None or not (is_watched(list(operands.values())) or is_said(x.device))',
        'is_known = note is not None',
        'tests/conv/compiled/test_known_calls.py -k checkpoint',
    ),
    Mutation(
        'the nodes of ends that no operator indexes by',
        'ops/listed.py',
        'if side not in reads and len(places)',
        'if False and len(places)',
        'tests/compiler/test_at_once.py -k is_named',
    ),
    Mutation(
        'sizes that are given beside features',
        'conv/_compiled/known_arguments.py',
        'rows: list[int | None] = [None, None] if size is None else [*size]',
        'rows: list[int | None] = [None, None]',
        'tests/conv/compiled/test_known_calls.py -k sizes',
    ),
    Mutation(
        'features of several graphs of nodes',
        'conv/_layer/stacks.py',
        'run({name: stack[k] for',
        'run({name: stack[0] for',
        'tests/compiler/test_stacks.py',
    ),
    Mutation(
        'edges that are written to after they were looked at',
        'graph/orders.py',
        'origin.check_unwritten()\n            return',
        'return',
        'tests/cpu/edges/test_pairs.py -k written_to',
    ),
    Mutation(
        'ties in a maximum that somebody watches',
        'compiler/networks/network.py',
        'dtype.itemsize) and not is_intercepted()',
        'dtype.itemsize)',
        'tests/compiler/test_at_once.py -k watches',
    ),
)
