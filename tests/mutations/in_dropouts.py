"""What is broken in dropouts of values of edges."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MESSAGES = 'tests/compiler/test_drawn_dropouts.py'
LAYERS = 'tests/conv/edge_conv/test_dropout.py'
DRAWS = 'tests/ops/test_dropout_draws.py'
NUMBERS = 'tests/program/test_splitmix.py'
CHUNKS = 'tests/ops/edge_mlp/test_edge_mlp.py -k dropped'
FEW_EDGES = 'tests/ops/edge_mlp/test_few_edges.py -k dropped'
SECOND_ORDER = 'tests/ops/edge_mlp/test_second_order.py -k dropped'

OF_DROPOUTS = (
    Mutation(
        'two dropouts of one probability are one',
        'compiler/passes/subexpressions.py',
        "('dropout', 'dropout_draws', 'dropout_of_nodes', 'layer')",
        "('dropout', 'dropout_of_nodes', 'layer')",
        f'{MESSAGES} -k two_dropouts',
    ),
    Mutation(
        'a key for a probability',
        'compiler/programs/emission.py',
        'for first in (0, factor.width)',
        'for first in (0, 0)',
        f'{MESSAGES} -k test_messages',
    ),
    Mutation(
        'returned values that are dropped stay with chunks',
        'compiler/plan/plan.py',
        'if found and not (found[0]._chunked_dropouts or any(found[0]._shortcomings[:2])):',
        'if found and not any(found[0]._shortcomings[:2]):',
        f'{MESSAGES} -k returned',
    ),
    Mutation(
        'a marked edge is another one for walks than for torch',
        'codegen/splitmix.py',
        'return builder.xor(word, builder.lshr(word, _word(word.type.count, shift)))',
        'return builder.xor(word, builder.lshr(word, _word(word.type.count, shift + 1)))',
        DRAWS,
    ),
    Mutation(
        'what is kept is not scaled',
        'codegen/splitmix.py',
        "return builder.select(builder.fcmp_ordered('>=', drawn, probability), scale, zero)",
        "return builder.select(builder.fcmp_ordered('>=', drawn, probability), one, zero)",
        DRAWS,
    ),
    Mutation(
        'marks that repeat',
        'program/splitmix.py',
        'torch.arange(_FIRST_MARK, _FIRST_MARK + count, dtype=torch.int32, device=device)',
        '(torch.arange(_FIRST_MARK, _FIRST_MARK + count, dtype=torch.int32, device=device) & ~1)',
        NUMBERS,
    ),
    Mutation(
        'streams of all channels are one, from another place on',
        'program/splitmix.py',
        '(word ^ (word >> MARK_SHIFT)) * (increment | 1) & _WORD',
        '((word ^ (word >> MARK_SHIFT)) + (increment & 7)) * 0x9E3779B1 & _WORD',
        NUMBERS,
    ),
    Mutation(
        'gradients pass a dropout on chunks',
        'ops/edge_mlp/steps.py',
        'return self._dropped(grad, grad)',
        'return grad',
        CHUNKS,
    ),
    Mutation(
        'gradients pass a dropout along few edges',
        'cpu/few_edges/stage_bodies.py',
        '{", ".join(tensors)}, {after}, {after}\'',
        '{", ".join(tensors)}, {after}, scratch\'',
        FEW_EDGES,
    ),
    Mutation(
        'tangents pass a dropout',
        'ops/edge_mlp/tangent_steps.py',
        'for values, place in zip(both, out, strict=True):',
        'for values, place in [(both[0], out[0])]:',
        SECOND_ORDER,
    ),
    Mutation(
        'one of two factors of a network is left out',
        'compiler/networks/reading.py',
        'return None if None in parts else [*parts[0], *parts[1]]',
        'return None if None in parts else parts[0]',
        'tests/compiler/test_edge_networks.py -k factors',
    ),
    Mutation(
        "few edges of a network that drops are kernels'",
        'conv/edge_conv.py',
        'if any(map(is_dropping, modules)):',
        'if False:',
        f'{LAYERS} -k few_edges',
    ),
    Mutation(
        'a network drops in evaluation',
        'conv/_edge_mlp/network.py',
        'if module.training and probability > 0.0:',
        'if probability > 0.0:',
        f'{LAYERS} -k evaluation',
    ),
)
