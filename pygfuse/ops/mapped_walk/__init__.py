"""Edge programs along few edges whose operands are linear maps: maps and walk are one node of autograd.

Of so few rows, what autograd does for a node takes as long as the node's products.
"""

from pygfuse.ops.mapped_walk.form import Form, Part, Weights
from pygfuse.ops.mapped_walk.node import walk_of_maps
from pygfuse.ops.nodes.derived import Derived

__all__ = ['Derived', 'Form', 'Part', 'Weights', 'walk_of_maps']
