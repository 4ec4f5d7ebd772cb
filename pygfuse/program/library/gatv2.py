"""GATv2 (Brody et al., 2022): softmax over scores that are nonlinear in both ends."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import leaky_relu, sum_channels


def score(x, x_dst, edge, att, negative_slope):
    return sum_channels(leaky_relu(x + x_dst + edge, negative_slope) * att)


def message(weight, x):
    return weight * x


GATV2 = EdgeProgram(
    'gatv2',
    operands(source='x', target='x_dst', edge='edge', parameter='att', parameter_scalar='negative_slope'),
    score=score,
    message=message,
    softmax=True,
)
