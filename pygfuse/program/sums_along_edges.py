"""How the rows of neighbours are summed where few edges are taken as they come, and no program is walked."""

# as they are, divided by their number at a target, or by the roots of their numbers at both ends
SUM, MEAN, NORMALISED = 'sum', 'mean', 'normalised'
# the last, with one self-loop at each node in place of others
NORMALISED_WITH_LOOPS = 'normalised with loops'
# each row times the weight of its edge, of which there is no gradient
WEIGHTED = 'weighted'
