"""What HEAT (Mo et al., 2022) takes of the edges: their activated features, weighed as GAT weighs neighbours."""

from pygfuse.program.library.gat import score
from pygfuse.program.program import EdgeProgram, operands
from pygfuse.program.vocabulary import leaky_relu


def message(weight, edge, negative_slope):
    return weight * leaky_relu(edge, negative_slope)


HEAT_EDGES = EdgeProgram(
    'heat_edges',
    operands(
        edge='edge',
        source_heads='alpha_src',
        target_heads='alpha_dst',
        edge_heads='alpha_edge',
        parameter_scalar='negative_slope',
    ),
    score=score,
    message=message,
    softmax=True,
)
