"""GAT (Velickovic et al., 2018): softmax over leaky rectified sums of node scores."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import leaky_relu, sum_channels


def score(alpha_src, alpha_dst, alpha_edge, negative_slope):
    """The halves of the attention vector were contracted with the nodes' and the edges' features before.

    Contracted with one matrix, an infinite feature of an edge gives an infinite term, by PyG's two maps NaN: as here.
    """
    return leaky_relu(alpha_src + alpha_dst + (alpha_edge + (alpha_edge - alpha_edge)), negative_slope)


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


def unreorganised_score(x, x_dst, edge, att_src, att_dst, att_edge, negative_slope):
    """The same with the contractions on every edge."""
    return leaky_relu(sum_channels(att_src * x + att_dst * x_dst + att_edge * edge), negative_slope)


UNREORGANISED_GAT = EdgeProgram(
    'unreorganised_gat',
    operands={
        'x': Operand('source', 'channels'),
        'x_dst': Operand('target', 'channels'),
        'edge': Operand('edge', 'channels'),
        'att_src': Operand('parameter', 'channels'),
        'att_dst': Operand('parameter', 'channels'),
        'att_edge': Operand('parameter', 'channels'),
        'negative_slope': Operand('parameter', 'scalar'),
    },
    score=unreorganised_score,
    message=message,
    softmax=True,
)
