"""GAT (Velickovic et al., 2018): softmax over leaky rectified sums of node scores."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import leaky_relu, sum_channels


def score(alpha_src, alpha_dst, alpha_edge, negative_slope):
    """The halves of the attention vector were contracted with the nodes' and the edges' features before.

    Contracted with one matrix, an infinite feature of an edge gives an infinite term, by PyG's two maps NaN: as here.
    """
    return leaky_relu(alpha_src + alpha_dst + (alpha_edge + (alpha_edge - alpha_edge)), negative_slope)


def message(weight, x):
    return weight * x


def weighed(name, message, **features):
    """A program that reads features and adds up its messages, weighed by the softmax of the score."""
    terms = operands(
        **features,
        source_heads='alpha_src',
        target_heads='alpha_dst',
        edge_heads='alpha_edge',
        parameter_scalar='negative_slope',
    )
    return EdgeProgram(name, terms, score=score, message=message, softmax=True)


GAT = weighed('gat', message, source='x')


def unreorganised_score(x, x_dst, edge, att_src, att_dst, att_edge, negative_slope):
    """The same with the contractions on every edge."""
    return leaky_relu(sum_channels(att_src * x + att_dst * x_dst + att_edge * edge), negative_slope)


UNREORGANISED_GAT = EdgeProgram(
    'unreorganised_gat',
    operands(
        source='x', target='x_dst', edge='edge', parameter='att_src att_dst att_edge', parameter_scalar='negative_slope'
    ),
    score=unreorganised_score,
    message=message,
    softmax=True,
)
