"""Edge programs along few edges whose operands are linear maps: maps and walk are one node of autograd.

Of so few rows, what autograd does for a node takes as long as the node's products.
"""

from pygfuse.ops.mapped_walk.form import Form, Part, Weights, first_of
from pygfuse.ops.mapped_walk.node import walk_of_maps
from pygfuse.ops.nodes.derived import Derived

__all__ = ['Derived', 'Form', 'Part', 'Weights', 'first_of', 'walk_of_maps']
