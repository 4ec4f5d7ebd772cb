"""EdgeConv (Wang et al., 2019) with one linear map, reorganised into a part of each end."""

from pygfuse.program import EdgeProgram, Operand

EDGE_CONV = EdgeProgram(
    'edge_conv',
    operands={'x': Operand('source', 'channels'), 'x_dst': Operand('target', 'channels')},
    message=lambda x, x_dst: x + x_dst,
)
