"""AGNN (Thekumparampil et al., 2018): softmax over cosines."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import sum_channels


def score(x_norm, x_norm_dst):
    """Features of length one; the target's come multiplied by the layer's temperature."""
    return sum_channels(x_norm * x_norm_dst)


def message(weight, x):
    return weight * x


AGNN = EdgeProgram(
    'agnn',
    operands(source='x x_norm', target='x_norm_dst'),
    score=score,
    message=message,
    softmax=True,
)
