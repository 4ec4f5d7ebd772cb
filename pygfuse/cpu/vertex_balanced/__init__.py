"""The vertex-balanced walk: a thread owns rows of the graph and all their edges.

One skeleton walks the graph by target rows (forward, and the adjoint of what belongs to the target) or its transpose
by source rows (the adjoint of what belongs to the source). The node of the row is *resident*: its operands and the
sums for it stay in registers. The node at the other end of an edge is *gathered*. A group of edges is scored side by
side where scores need no channels; their weights pass through a few bytes of stack to the loop over the group's edges,
which is where rows of channels are read, each once.

Work is dealt in parts: ranges of rows of about equal numbers of edges, times tiles of the row where a row is wider
than the registers. No part writes what another part writes, so results do not depend on the number of threads.
"""
