"""What is broken in modules that make edges anew of those that they are given."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_REMADE = 'tests/conv/modules/test_remade_edges.py'
_OWN = f'{_REMADE} -k "own_code and'

OF_REMADE_EDGES = (
    Mutation(
        'edges as they were given',
        'conv/_modules.py',
        'call = call._replace(edge_index=edge_index)',
        'pass',
        f'{_OWN} Normalised"',
    ),
    Mutation(
        'values of edges as they were given',
        'compiler/remade.py',
        'found |= made',
        'pass',
        f'{_OWN} Attention"',
    ),
    Mutation(
        'edges that are read before they are made',
        'compiler/remade.py',
        'if remaking is None or remaking.read is not None or edges.version != len(remaking.steps):',
        'if remaking is None:',
        f'{_REMADE} -k before_and_after',
    ),
    Mutation(
        'values of edges that are no longer there',
        'compiler/modules.py',
        "if any(node.op == 'input' and node.attributes['source'] in given for node in nodes):",
        'if False:',
        f'{_REMADE} -k before_and_after',
    ),
    Mutation(
        'no edges that are left',
        'conv/_modules.py',
        'if edge_index.shape[1] == 0:',
        'if False:',
        f'{_REMADE} -k are_left',
    ),
    Mutation(
        'a number of nodes that is that of one call',
        'compiler/remade.py',
        'num_nodes if item is _NODES else item',
        '30 if item is _NODES else item',
        f'{_REMADE} -k of_its_own_edges',
    ),
    Mutation(
        'edges that are traced as they were given',
        'conv/_traced_modules.py',
        'if captured.remade_by:',
        'if False:',
        f'{_REMADE} -k torch_compile',
    ),
)
