"""Attention whose score is the product of a number of each end: RGAT's multiplicative form (Busbridge et al., 2019)."""

from pygfuse.program.program import EdgeProgram, operands

MULTIPLICATIVE_GAT = EdgeProgram(
    'multiplicative_gat',
    operands(source='x', source_heads='alpha_src', edge_heads='alpha_edge'),
    score=lambda alpha_src, alpha_edge: alpha_src * alpha_edge,
    message=lambda weight, x: weight * x,
    softmax=True,
)
