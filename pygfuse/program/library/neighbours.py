"""Sums, means and extremes over neighbours, plain or weighted: GCN, GraphSAGE, GIN, GraphConv."""

from pygfuse.program.program import EdgeProgram, Operand

NEIGHBOURS = EdgeProgram('neighbours', operands={'x': Operand('source', 'channels')}, message=lambda x: x)

WEIGHTED_NEIGHBOURS = EdgeProgram(
    'weighted_neighbours',
    operands={'x': Operand('source', 'channels'), 'edge_weight': Operand('edge', 'heads')},
    score=lambda edge_weight: edge_weight,
    message=lambda weight, x: weight * x,
)

# the two ends' factors of a symmetrically normalised adjacency (Kipf and Welling, 2017) stay with the nodes
NORMALISED_NEIGHBOURS = EdgeProgram(
    'normalised_neighbours',
    operands={
        'x': Operand('source', 'channels'),
        'norm_src': Operand('source', 'heads'),
        'norm_dst': Operand('target', 'heads'),
    },
    score=lambda norm_src, norm_dst: norm_src * norm_dst,
    message=lambda weight, x: weight * x,
)

NORMALISED_WEIGHTED_NEIGHBOURS = EdgeProgram(
    'normalised_weighted_neighbours',
    operands={
        'x': Operand('source', 'channels'),
        'norm_src': Operand('source', 'heads'),
        'norm_dst': Operand('target', 'heads'),
        'edge_weight': Operand('edge', 'heads'),
    },
    score=lambda norm_src, norm_dst, edge_weight: norm_src * edge_weight * norm_dst,
    message=lambda weight, x: weight * x,
)
