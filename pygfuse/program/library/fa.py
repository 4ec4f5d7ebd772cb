"""FAGCN (Bo et al., 2021): signed attention on a normalised adjacency, without softmax."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import tanh


def message(weight, x):
    return weight * x


FA = EdgeProgram(
    'fa',
    operands={
        'x': Operand('source', 'channels'),
        'alpha_src': Operand('source', 'heads'),
        'alpha_dst': Operand('target', 'heads'),
        'edge_weight': Operand('edge', 'heads'),
    },
    score=lambda alpha_src, alpha_dst, edge_weight: tanh(alpha_src + alpha_dst) * edge_weight,
    message=message,
)

NORMALISED_FA = EdgeProgram(
    'normalised_fa',
    operands={
        'x': Operand('source', 'channels'),
        'alpha_src': Operand('source', 'heads'),
        'alpha_dst': Operand('target', 'heads'),
        'norm_src': Operand('source', 'heads'),
        'norm_dst': Operand('target', 'heads'),
    },
    score=lambda alpha_src, alpha_dst, norm_src, norm_dst: tanh(alpha_src + alpha_dst) * (norm_src * norm_dst),
    message=message,
)
