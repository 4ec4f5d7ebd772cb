"""The attention of AttentiveFP (Xiong et al., 2020): scores of sources and features of edges, and of targets."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import leaky_relu, sum_channels

_SLOPE = 0.01


def score(key, edge, att, query):
    """The query is a number of the target in one of its channels: a score sums channels alone."""
    return leaky_relu(sum_channels(leaky_relu(key + edge, _SLOPE) * att + query), _SLOPE)


def message(weight, x):
    return weight * x


GATE = EdgeProgram(
    'gate_attention',
    {
        'x': Operand('source', 'channels'),
        'key': Operand('source', 'channels'),
        'query': Operand('target', 'channels'),
        'edge': Operand('edge', 'channels'),
        'att': Operand('parameter', 'channels'),
    },
    score=score,
    message=message,
    softmax=True,
)
