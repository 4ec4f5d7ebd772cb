"""The sum (or mean) of values of edges over each target's edges."""

from pygfuse.program.program import EdgeProgram, operands


def score(value):
    return value


def message(weight):
    return weight


EDGE_SUM = EdgeProgram('edge_sum', operands(edge_heads='value'), score=score, message=message)
