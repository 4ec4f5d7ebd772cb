"""GINE (Hu et al., 2020): a rectified sum of the neighbour and the edge."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import relu

GINE = EdgeProgram(
    'gine',
    operands={'x': Operand('source', 'channels'), 'edge': Operand('edge', 'channels')},
    message=lambda x, edge: relu(x + edge),
)
