"""FAGCN (Bo et al., 2021): signed attention on a normalised adjacency, without softmax."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import tanh


def message(weight, x):
    return weight * x


FA = EdgeProgram(
    'fa',
    operands(source='x', source_heads='alpha_src', target_heads='alpha_dst', edge_heads='edge_weight'),
    score=lambda alpha_src, alpha_dst, edge_weight: tanh(alpha_src + alpha_dst) * edge_weight,
    message=message,
)

NORMALISED_FA = EdgeProgram(
    'normalised_fa',
    operands(source='x', source_heads='alpha_src norm_src', target_heads='alpha_dst norm_dst'),
    score=lambda alpha_src, alpha_dst, norm_src, norm_dst: tanh(alpha_src + alpha_dst) * (norm_src * norm_dst),
    message=message,
)
