"""GAT (Velickovic et al., 2018): softmax over leaky rectified sums of node scores."""

from pygfuse.program import EdgeProgram, Operand
from pygfuse.vocabulary import leaky_relu


def score(alpha_src, alpha_dst, alpha_edge, negative_slope):
    """The halves of the attention vector were contracted with the nodes' and the edges' features before."""
    return leaky_relu(alpha_src + alpha_dst + alpha_edge, negative_slope)


def message(weight, x):
    return weight * x


GAT = EdgeProgram(
    'gat',
    operands={
        'x': Operand('source', 'channels'),
        'alpha_src': Operand('source', 'heads'),
        'alpha_dst': Operand('target', 'heads'),
        'alpha_edge': Operand('edge', 'heads'),
        'negative_slope': Operand('parameter', 'scalar'),
    },
    score=score,
    message=message,
    softmax=True,
)
