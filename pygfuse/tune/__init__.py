"""What is found by measurement: the best mapping of a graph, and its group sizes."""

from pygfuse.mapping.group_sizes.chooser import CHOOSERS

CHOOSERS['measured'] = 'pygfuse.tune.group_sizes'
