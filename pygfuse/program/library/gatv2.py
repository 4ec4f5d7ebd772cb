"""GATv2 (Brody et al., 2022): softmax over scores that are nonlinear in both ends."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import leaky_relu, sum_channels


def score(x, x_dst, edge, att, negative_slope):
    return sum_channels(leaky_relu(x + x_dst + edge, negative_slope) * att)


def message(weight, x):
    return weight * x


GATV2 = EdgeProgram(
    'gatv2',
    operands={
        'x': Operand('source', 'channels'),
        'x_dst': Operand('target', 'channels'),
        'edge': Operand('edge', 'channels'),
        'att': Operand('parameter', 'channels'),
        'negative_slope': Operand('parameter', 'scalar'),
    },
    score=score,
    message=message,
    softmax=True,
)
