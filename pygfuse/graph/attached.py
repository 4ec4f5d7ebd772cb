"""What belongs to a user's tensor: its graph, its HAG, its distances, the rows it names.

Layers are given this tensor and nothing else, so all of it is found by the tensor's identity, and goes once the tensor
dies or is written to.
"""

from pygfuse._lib.identity_cache import IdentityCache
from pygfuse.graph.adjacency import state_of

# keys are tuples whose first item names what is kept
ATTACHED = IdentityCache(state_of)
