"""What is broken in kernels: each of these compiles anew what its tests run."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

GAT = 'tests/conv/gat_conv'
AGGREGATE = 'tests/ops/test_aggregate.py -m "not slow"'
TURNS = 'tests/cpu/edges/test_turns.py'

OF_KERNELS = (
    # blocks of edges
    Mutation(
        'a softmax whose weights of former blocks are forgotten',
        'cpu/walks/forward.py',
        'total = total + repeat(before) * (1.0 / step)',
        'pass',
        f'{TURNS} -k at_once',
    ),
    Mutation(
        'sums of former blocks under a new maximum',
        'cpu/walks/forward.py',
        'if carried or q > begin:',
        'if q > begin:',
        f'{TURNS} -k "at_once or rise"',
    ),
    Mutation(
        'a block that writes where it adds',
        'cpu/walks/backward.py',
        'elif carried:',
        'elif False:',
        f'{TURNS} -k at_once',
    ),
    Mutation(
        'rows of a block that lie in several parts',
        'cpu/edges/turns.py',
        'return () if any(cut(block).num_slots for block in blocks) else blocks',
        'return blocks',
        f'{TURNS} -k several_parts',
    ),
    Mutation(
        'tiles that add to the same channels',
        'cpu/row_sums.py',
        'may_add = form == ONE_PASS and not planning.overlaps(tiling, call.width)',
        'may_add = form == ONE_PASS',
        f'{TURNS} -k tiles',
    ),
    Mutation(
        'ids of edges in blocks',
        'cpu/edges/edge_blocks.py',
        'placed_id[place] = edge_id[q]',
        'placed_id[place] = q',
        f'{TURNS} -k blocks_hold',
    ),
    Mutation(
        'blocks for each width',
        'mapping/blocks.py',
        'rounded = 1 << (other_bytes * 8 // 9 - 1).bit_length()',
        'rounded = other_bytes',
        'tests/mapping/test_blocks.py',
    ),
    Mutation(
        'blocks of nodes that no cache holds',
        'mapping/blocks.py',
        'return count if count > 1 and all_bytes <= wider * BLOCK_BYTES * count else 1',
        'return max(count, 1)',
        'tests/mapping/test_blocks.py',
    ),
    Mutation(
        'the scale of dropout',
        'codegen/philox.py',
        '2**32 - 1), 1.0 / (1.0 - probability)',
        '2**32 - 1), 1.0',
        f'{GAT} -k dropout_keeps_the_expectation',
    ),
    Mutation(
        'the key of dropout',
        'codegen/philox.py',
        '            key = [builder.add(k, step)',
        '            [builder.add(k, step)',
        'tests/cpu/test_random.py',
    ),
    Mutation(
        'heads that drop alike',
        'cpu/random.py',
        '(block % groups * together for block in range(blocks))',
        '(0 for block in range(blocks))',
        'tests/cpu/test_random.py',
    ),
    Mutation(
        'tiles of heads that draw other words',
        'codegen/philox.py',
        'zip(found[:bit], found[bit:], strict=True)',
        'zip(found[bit:], found[:bit], strict=True)',
        'tests/cpu/test_random.py',
    ),
    Mutation(
        'edges whose numbers are above 32 bits drop alike',
        'cpu/random.py',
        'builder.lshr(ids, llvm.splat(builder, upper, blocks))',
        'ir.Constant(ids.type, None)',
        'tests/cpu/test_random.py',
    ),
    Mutation(
        'a tile that overlaps',
        'cpu/row_tiling.py',
        'if not split_channels or rest in (0, channels):',
        'if True:',
        f'{AGGREGATE} -k ragged_rows_of_unsorted_edges',
    ),
    Mutation(
        'the sums so far under a new maximum',
        'cpu/walks/forward.py',
        'result, total = result * factor, total * factor',
        'result, total = result * factor, total',
        f'{GAT} -k extreme_scores',
    ),
    Mutation(
        'edges beyond the end of a row',
        'cpu/walks/forward.py',
        's = mask_edges(s, end - q, -np.inf)',
        'pass',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    *(
        Mutation(
            f'a score that is rounded otherwise than the maximum, {walk}',
            f'cpu/walks/{walk}.py',
            f'exp(above({score}, {top}))',
            f'exp({score} - {top})',
            f'{AGGREGATE} -k rounded_before',
        )
        for walk, score, top in (('forward', 's', 'row_top'), ('backward', 'alpha', 'top'), ('weights', 's', 'top'))
    ),
    Mutation(
        'kept weights of an extreme that round otherwise',
        'cpu/kernels.py',
        '        WEIGHTS,\n        fuses_products(reduce),',
        '        WEIGHTS,',
        f'{AGGREGATE} -k found_again',
    ),
    Mutation(
        'pieces of a softmax',
        'codegen/combination.py',
        'result, top = result * mine + found * theirs, raised',
        'result, top = result * mine + found, raised',
        f'{AGGREGATE} -k both_mappings',
    ),
    Mutation(
        'the number of ties',
        'cpu/walks/forward.py',
        'equal(result, best, ties, 0.0) + 1.0, ties)',
        'equal(result, best, 0.0, 0.0) + 1.0, ties)',
        f'{AGGREGATE} -k ties_share',
    ),
    Mutation(
        'ties of pieces',
        'codegen/combination.py',
        'result, ties = best, equal(result, best, ties, 0.0) + theirs',
        'result, ties = best, theirs',
        f'{AGGREGATE} -k "ties_share or reductions_in_both"',
    ),
    Mutation(
        'the slot of what a part leaves',
        'codegen/parts.py',
        'end == row_end, 2 * piece + begins_here',
        'end == row_end, 2 * piece + (end == row_end)',
        f'{AGGREGATE} -k both_mappings',
    ),
    Mutation(
        'the adjoint of a softmax',
        'cpu/walks/backward.py',
        'through = alpha * (through - mean_dot)',
        'through = alpha * through',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    Mutation(
        'dropout in backward',
        'cpu/walks/backward.py',
        'through = through * kept',
        'pass',
        f'{AGGREGATE} -k dropout_of_weights',
    ),
    Mutation(
        'edges beyond the end of a row in backward',
        'cpu/walks/backward.py',
        'through = mask_edges(through, end - q, 0.0)',
        'pass',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    Mutation(
        'edges that message and score both reach',
        'cpu/walks/backward.py',
        'edge_grads = add_tuples(edge_grads, found[2])',
        'pass',
        f'{AGGREGATE} -k "program_equals or products"',
    ),
    Mutation(
        'gradients of parameters',
        'cpu/walks/backward.py',
        'parameter_sums = add_tuples(parameter_sums, flow[5])',
        'pass',
        f'{AGGREGATE} -k program_equals_its_reference',
    ),
    Mutation(
        'blocks of a long row',
        'cpu/walks/backward.py',
        'if settled > begin:',
        'if False:',
        'tests/compiler/test_own_convs.py -k "two and hub"',
    ),
    Mutation(
        'a long row in one line',
        'cpu/walks/backward.py',
        'if q + step - settled >= SETTLED_AFTER:',
        'if False:',
        'tests/compiler/test_own_convs.py -k "equal_gradients"',
    ),
    Mutation(
        "another library's team of threads",
        'cpu/compilation/team.py',
        'ctypes.CDLL(torch._C.__file__)',
        "ctypes.CDLL(__import__('_ctypes').__file__)",
        'tests/cpu/compilation/test_team.py -k torchs',
    ),
)
