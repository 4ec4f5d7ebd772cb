"""The graph transformer (Shi et al., 2021): softmax over dots of queries and keys."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import sum_channels


def score(query, key, edge):
    """The query comes divided by the square root of its channels."""
    return sum_channels(query * (key + edge))


def message(weight, value, edge):
    return weight * (value + edge)


TRANSFORMER = EdgeProgram(
    'transformer',
    operands={
        'query': Operand('target', 'channels'),
        'key': Operand('source', 'channels'),
        'value': Operand('source', 'channels'),
        'edge': Operand('edge', 'channels'),
    },
    score=score,
    message=message,
    softmax=True,
)
