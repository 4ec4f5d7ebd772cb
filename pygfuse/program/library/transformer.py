"""The graph transformer (Shi et al., 2021): softmax over dots of queries and keys."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import sum_channels


def score(query, key, edge, scale):
    """The scale, one by the square root of a head's channels, here costs no scaled copy of the queries."""
    return sum_channels(query * (key + edge)) * scale


def message(weight, value, edge):
    return weight * (value + edge)


TRANSFORMER = EdgeProgram(
    'transformer',
    operands(target='query', source='key value', edge='edge', parameter_scalar='scale'),
    score=score,
    message=message,
    softmax=True,
)
