"""The crystal graph convolution (Xie and Grossman, 2018): a gate times a softened rectifier."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import sigmoid, softplus


def message(f, f_dst, s, s_dst, f_edge, s_edge):
    return sigmoid(f_dst + f + f_edge) * softplus(s_dst + s + s_edge)


CRYSTAL = EdgeProgram(
    'crystal',
    operands(source='f s', target='f_dst s_dst', edge='f_edge s_edge'),
    message=message,
)
