"""The crystal graph convolution (Xie and Grossman, 2018): a gate times a softened rectifier."""

from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import sigmoid, softplus


def message(f, f_dst, s, s_dst, f_edge, s_edge):
    return sigmoid(f_dst + f + f_edge) * softplus(s_dst + s + s_edge)


CRYSTAL = EdgeProgram(
    'crystal',
    operands={
        'f': Operand('source', 'channels'),
        's': Operand('source', 'channels'),
        'f_dst': Operand('target', 'channels'),
        's_dst': Operand('target', 'channels'),
        'f_edge': Operand('edge', 'channels'),
        's_edge': Operand('edge', 'channels'),
    },
    message=message,
)
