"""What is broken in modules that take all nodes, all edges or groups of nodes together."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_ALL = 'tests/conv/modules/test_of_all_nodes.py'
_OWN = f'{_ALL} -k "own_code and'

OF_NODES = (
    Mutation(
        'a shape of one number of nodes',
        'compiler/functions/of_nodes.py',
        'if few == many:',
        'if len(few) != 2 or few == many:',
        f'{_ALL} -k depends_on_values',
    ),
    Mutation(
        'a mean over edges of rows as of numbers',
        'compiler/functions/handlers.py',
        'x.node.width / total.node.width',
        'x.node.width',
        f'{_OWN} Ranking"',
    ),
    Mutation(
        'a number of edges that is one of nodes',
        'compiler/plan/called.py',
        '{EDGE: edges.num_user_edges, ',
        '{EDGE: edges.num_targets, ',
        f'{_OWN} Ranking"',
    ),
    Mutation(
        'what is written into a tensor that another one is',
        'compiler/symbols/symbol.py',
        'function = _without_writes(name) if writes else function',
        'pass',
        f'{_ALL} -k written_into',
    ),
    Mutation(
        'numbers that are drawn for all nodes',
        'compiler/symbols/symbol.py',
        'is_of_nodes = are_of_nodes(list(symbols_in((args, kwargs)))) and not is_drawn(name)',
        'is_of_nodes = are_of_nodes(list(symbols_in((args, kwargs))))',
        f'{_ALL} -k depends_on_values',
    ),
    Mutation(
        'groups of nodes',
        'compiler/functions/leaves.py',
        'if len(symbols) == 2 and are_of_nodes(symbols) and',
        'if len(symbols) == 3 and are_of_nodes(symbols) and',
        f'{_OWN} Readout"',
    ),
    Mutation(
        'tensors of numbers that a call makes',
        'compiler/capture/layers.py',
        'if function in _MADE and not any(others):',
        'if False:',
        f'{_OWN} Counts"',
    ),
    Mutation(
        'results that are of no node',
        'compiler/modules/captured_module.py',
        'captured(forward, module, guards, remaking.device, may_share=True)',
        'captured(forward, module, guards, remaking.device)',
        f'{_OWN} Energy"',
    ),
    Mutation(
        'parts of what torch gives, all of them the first',
        'compiler/ir/operations.py',
        'return function(*args, **keywords)[piece]',
        'return function(*args, **keywords)[0]',
        f'{_OWN} PartsOfParameters"',
    ),
    Mutation(
        'functions whose name says that they draw',
        'compiler/symbols/random_functions.py',
        "and name != 'normalize'",
        "and name != 'normal'",
        f'{_OWN} PartsOfParameters"',
    ),
    Mutation(
        'views of nodes',
        'compiler/functions/of_nodes.py',
        'found.is_view = shares_memory(examples[0], given)',
        'pass',
        f'{_ALL} -k into_views',
    ),
    Mutation(
        'views of what is shared',
        'compiler/symbols/symbol.py',
        'made.is_view = shares_memory(part, examples)',
        'pass',
        f'{_ALL} -k into_views',
    ),
    Mutation(
        'functions in place that are no methods',
        'compiler/symbols/symbol.py',
        'for owner in (Tensor, torch, F):',
        'for owner in (Tensor,):',
        f'{_ALL} -k into_views',
    ),
)
