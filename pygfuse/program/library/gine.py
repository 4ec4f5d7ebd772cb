"""GINE (Hu et al., 2020): a rectified sum of the neighbour and the edge."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import relu

GINE = EdgeProgram(
    'gine',
    operands(source='x', edge='edge'),
    message=lambda x, edge: relu(x + edge),
)
