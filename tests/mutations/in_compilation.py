"""What is broken in the translation of kernels, in their launch, and in the checks before it."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

TRANSLATION = 'tests/cpu/test_translation.py'
LAUNCH = 'tests/cpu/compilation/test_launch.py'
GIVEN = 'tests/ops/test_given.py'
EAGER = 'tests/ops/test_eager.py'
WRITTEN_SOFTMAX = 'tests/compiler/passes/test_written_softmax.py'

OF_COMPILATION = (
    # translation
    Mutation(
        'sums of exponentials that are bounded',
        'compiler/passes/softmax.py',
        "value('add', value('reduce', grown, reduce='sum'), 1e-16)",
        "value('clamp', value('reduce', grown, reduce='sum'), 1, None)",
        'tests/compiler/test_other_reductions.py -k only_edge',
    ),
    Mutation(
        'exponentials of targets without edges',
        'compiler/passes/softmax.py',
        "        above = value('clamp', above, None, 1.0)",
        '        pass',
        'tests/compiler/test_own_convs.py -k isolated_nodes_alone',
    ),
    Mutation(
        'a written softmax with an epsilon that is seen',
        'compiler/passes/written_softmax.py',
        'eps / 2 if',
        'eps * 1e12 if',
        f'{WRITTEN_SOFTMAX} -k what_is_none',
    ),
    Mutation(
        'a written softmax of targets without edges',
        'compiler/passes/written_softmax.py',
        'total is not divisor and ',
        '',
        f'{WRITTEN_SOFTMAX} -k what_is_none',
    ),
    Mutation(
        'the highest of other scores',
        'compiler/passes/written_softmax.py',
        'return score if inner is score or (inner.op ==',
        'return score if True or (inner.op ==',
        f'{WRITTEN_SOFTMAX} -k what_is_none',
    ),
    Mutation(
        'degrees of both ends that are one',
        'compiler/passes/subexpressions.py',
        'attributes, node.dtype, node.residency',
        'attributes, node.dtype',
        'tests/compiler/test_degrees_of_both_ends.py',
    ),
    Mutation(
        'degrees of other nodes',
        'compiler/capture/layers.py',
        "return any(node.op in ('degree', 'reduce') for node in moved) or any('side' in n.attributes for n in found)",
        'return False',
        'tests/compiler/test_degrees_of_both_ends.py -k two_sets',
    ),
    Mutation(
        'gradients of what is detached',
        'compiler/passes/detached.py',
        "value('detach', argument) if argument.dtype.is_floating_point else argument",
        'argument',
        'tests/compiler/test_published_convs.py -k semi-gradient',
    ),
    Mutation(
        'a chain of comparisons',
        'cpu/translation/expressions.py',
        'self.builder.and_(self.as_bit(found), self.as_bit(holds))',
        'self.builder.or_(self.as_bit(found), self.as_bit(holds))',
        f'{TRANSLATION} -k comparisons',
    ),
    Mutation(
        'what is no number is unlike everything',
        'cpu/vectors/numbers.py',
        "(builder.fcmp_unordered if sign == '!=' else builder.fcmp_ordered)(sign, x, y)",
        'builder.fcmp_ordered(sign, x, y)',
        f'{TRANSLATION} -k comparisons',
    ),
    Mutation(
        'a quotient that is rounded down',
        'cpu/vectors/numbers.py',
        'quotient = builder.select(down, builder.sub(quotient, one), quotient)',
        'pass',
        f'{TRANSLATION} -k integers',
    ),
    Mutation(
        'the other branch of what is known',
        'cpu/translation/statements.py',
        'self._block(statement.body if condition else statement.orelse)',
        'self._block(statement.body if condition else [])',
        TRANSLATION,
    ),
    Mutation(
        'products that stay products',
        'cpu/translation/expressions.py',
        "instruction.flags = [flag for flag in instruction.flags if flag != 'contract']",
        'pass',
        'tests/conv/test_extremes.py',
    ),
    # launch
    Mutation(
        'an argument of another type',
        'codegen/packing.py',
        ' or {value}.dtype is not {_name_of(kind)}{refused}',
        '{refused}',
        LAUNCH,
    ),
    Mutation(
        'the words of a packed tuple',
        'codegen/packing.py',
        '(0, arguments)[len(PARTS.head) :])',
        '(0, arguments)[: -len(PARTS.head)])',
        LAUNCH,
    ),
    Mutation(
        'a packed tuple of other types',
        'codegen/packing.py',
        "tests.append(f'type({name}) is not Packed or {name}.kinds is not kinds_{i}')",
        "tests.append(f'type({name}) is not Packed')",
        LAUNCH,
    ),
    # plans and what is given
    Mutation(
        'rows of edges',
        'ops/plan.py',
        'if rows != num_edge_ids:',
        'if False:',
        GIVEN,
    ),
    Mutation(
        'the width of an operand',
        'ops/given.py',
        'if have != rows or tensor.numel() != have * width:',
        'if have != rows:',
        GIVEN,
    ),
    Mutation(
        'a class of tensors',
        'ops/within_torch/intercepted.py',
        '    if are_plain(tensors):\n        return tensors',
        '    return tensors',
        f'{EAGER} -k class_of_tensors',
    ),
    # what is read as often as in PyG
    Mutation(
        'a map of no edges',
        'conv/gat_conv.py',
        'edge = edge if edges.num_edges or edges.loops else None',
        'pass',
        'tests/conv/test_state_of_the_module.py -k evaluated_as_often_as',
    ),
    Mutation(
        'a pair of one tensor',
        'conv/_layer/checks.py',
        'x[1].view_as(x[1]) if x[1] is x[0] and isinstance(x[1], Tensor) else x[1]',
        'x[1]',
        'tests/conv/test_state_of_the_module.py -k evaluated_as_often_as',
    ),
    Mutation(
        'plans of a copy',
        'swap.py',
        'module.forget_plans()',
        'pass',
        'tests/conv/test_state_of_the_module.py -k copy_of_an_unfused',
    ),
)
