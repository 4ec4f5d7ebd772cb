"""What HEAT (Mo et al., 2022) takes of the edges: their activated features, weighed as GAT weighs neighbours."""

from pygfuse.program.library.gat import weighed
from pygfuse.program.vocabulary import leaky_relu


def message(weight, edge, negative_slope):
    return weight * leaky_relu(edge, negative_slope)


HEAT_EDGES = weighed('heat_edges', message, edge='edge')
