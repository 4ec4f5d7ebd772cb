"""What is broken in networks of stages on few edges."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

STAGES = 'tests/ops/edge_mlp/test_few_edges.py'
BODIES = 'cpu/few_edges/stage_bodies.py'

OF_FEW_EDGE_STAGES = (
    Mutation(
        'gradients through the variance of a row',
        'cpu/few_edges/stage_norms.py',
        ' - normed * (row_full(of_normed[e]) * share)',
        '',
        'tests/ops/edge_mlp/test_few_edges.py -k "values_and_gradients and normalised and sum"',
    ),
    Mutation(
        'sums of blocks of fewer edges than usual',
        'cpu/few_edges/stage_bodies.py',
        'pointer_at(scratch, last - 2 * first)',
        'pointer_at(scratch, {BLOCK} - first)',
        'tests/ops/edge_mlp/test_few_edges.py -k "beyond and 3 and normalised"',
    ),
    Mutation(
        'more parts than pay',
        'cpu/few_edges/stages.py',
        '    while parts > 2 and parts * num_nodes > 2 * num_edges:\n        parts //= 2\n',
        '',
        'tests/ops/edge_mlp/test_few_edges.py -k more_parts',
    ),
    Mutation(
        'parts that all add to the first one',
        BODIES,
        "text.say(f'grad{place} = pointer_at(grads[{place}], part * ({length}))')",
        "text.say(f'grad{place} = pointer_at(grads[{place}], 0)')",
        f'{STAGES} -k values_and_gradients',
    ),
    Mutation(
        'a block of the other part',
        BODIES,
        "f' + part * {BLOCK * sum(widths)} - first * {width}'",
        "f' - first * {width}'",
        f'{STAGES} -k "values_and_gradients or threads"',
    ),
    Mutation(
        'a number an edge whose gradient is that of the first channel',
        BODIES,
        'is_one = stage.features == 1 and width > 1',
        'is_one = False',
        f'{STAGES} -k "values_and_gradients and number"',
    ),
    Mutation(
        'gradients that end too early',
        BODIES,
        'for p in earlier if p is not None):\n            break',
        'for p in earlier[:1] if p is not None):\n            break',
        f'{STAGES} -k nobody_wants',
    ),
    Mutation(
        'a maximum whose edges are taken block by block',
        BODIES,
        'return network.reduce in EXTREMES and with_out',
        'return False',
        f'{STAGES} -k "values_and_gradients and max"',
    ),
    Mutation(
        'values of edges that have a gradient of their own',
        BODIES,
        "more = 'after_' if with_out else 'None'",
        "more = 'None'",
        f'{STAGES} -k "values_and_gradients and values"',
    ),
    Mutation(
        'so many edges in a kernel of a maximum',
        'ops/edge_mlp/at_once.py',
        "if is_tiny or (reduce != 'max' and are_taken_in_kernels(edges, *row)):",
        'if is_tiny or are_taken_in_kernels(edges, *row):',
        'tests/compiler/test_at_once.py -k chunks',
    ),
    Mutation(
        'tensors of another size in a kernel',
        'ops/edge_mlp/few_edges.py',
        'if any(t is not None and (t.shape != shape or',
        'if any(t is not None and (',
        f'{STAGES} -k another_size',
    ),
    Mutation(
        'memory before a block',
        BODIES,
        "rows = f'pointer_at(scratch, -first * {width})' if is_one else of_features",
        "rows = f'pointer_at(scratch, -first * {2 * width})' if is_one else of_features",
        f'{STAGES} -k beyond',
    ),
)
