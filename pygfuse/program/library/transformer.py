"""The graph transformer (Shi et al., 2021): softmax over dots of queries and keys."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import sum_channels


def score(query, key, edge):
    """The query comes divided by the square root of its channels."""
    return sum_channels(query * (key + edge))


def message(weight, value, edge):
    return weight * (value + edge)


TRANSFORMER = EdgeProgram(
    'transformer',
    operands(target='query', source='key value', edge='edge'),
    score=score,
    message=message,
    softmax=True,
)
