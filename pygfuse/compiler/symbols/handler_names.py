"""Names of handlers that are of no function of torch alone."""

from __future__ import annotations

# the handler of functions of nodes that have none
ANY_OF_NODES = 'any of nodes'
# that of arithmetic with a number of nodes
WITH_ROWS = 'with a number of nodes'
# that of reductions of edges by numbers of their ends
TO_GROUPS = 'to groups'
# that of softmaxes over the edges of such groups
SOFTMAX_OF_GROUPS = 'softmax of groups'
# that of views with dimensions before that of rows
LIFTED = 'lifted'
# that of functions of nodes whose rows are not their first dimension
TURNED_NODES = 'turned nodes'
# that of shapes of shared values by numbers of edges or nodes
BY_ROWS = 'by rows'
