"""The residual gated graph convolution (Bresson and Laurent, 2017), with its gate's activations."""

from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import relu, sigmoid, tanh


def gated(activation):
    def message(gate, gate_dst, value, gate_edge, value_edge):
        # one map stands for two of PyG's: their sum may be inf - inf, which this must not hide
        of_edge = gate_edge + (gate_edge - gate_edge)
        return activation(gate_dst + gate + of_edge) * (value + value_edge)

    return message


RES_GATED = {
    activation.__name__: EdgeProgram(
        f'res_gated_{activation.__name__}',
        operands(source='gate value', target='gate_dst', edge='gate_edge value_edge'),
        message=gated(activation),
    )
    for activation in (sigmoid, tanh, relu)
}
