"""Sums, means and extremes over neighbours, plain or weighted: GCN, GraphSAGE, GIN, GraphConv."""

from pygfuse.program.program import EdgeProgram, operands

NEIGHBOURS = EdgeProgram('neighbours', operands(source='x'), message=lambda x: x)

WEIGHTED_NEIGHBOURS = EdgeProgram(
    'weighted_neighbours',
    operands(source='x', edge_heads='edge_weight'),
    score=lambda edge_weight: edge_weight,
    message=lambda weight, x: weight * x,
)

# the adjoint of a mean
SCALED_NEIGHBOURS = EdgeProgram(
    'scaled_neighbours',
    operands(source='x', source_heads='factor'),
    score=lambda factor: factor,
    message=lambda weight, x: weight * x,
)

# the two ends' factors of a symmetrically normalised adjacency (Kipf and Welling, 2017) stay with the nodes
NORMALISED_NEIGHBOURS = EdgeProgram(
    'normalised_neighbours',
    operands(source='x', source_heads='norm_src', target_heads='norm_dst'),
    score=lambda norm_src, norm_dst: norm_src * norm_dst,
    message=lambda weight, x: weight * x,
)

NORMALISED_WEIGHTED_NEIGHBOURS = EdgeProgram(
    'normalised_weighted_neighbours',
    operands(source='x', source_heads='norm_src', target_heads='norm_dst', edge_heads='edge_weight'),
    score=lambda norm_src, norm_dst, edge_weight: norm_src * edge_weight * norm_dst,
    message=lambda weight, x: weight * x,
)
