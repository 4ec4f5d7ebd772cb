"""The walks: rows of a graph and all their edges, a part of the work at a time.

One skeleton walks the graph by target rows (forward, and the adjoint of what belongs to the target) or its transpose
by source rows (the adjoint of what belongs to the source). The node of the row is *resident*: its operands and the
sums for it stay in registers. The node at the other end of an edge is *gathered*. A vector of edges is scored side by
side; their weights pass through a few bytes of stack to the loop over these edges, which is where rows of
channels are read.

Work is dealt in parts (`pygfuse.mapping`), times tiles of the row where a row is wider than the registers. A row
that is whole in its part is finished there; of others the parts leave partial results, which are combined afterwards.
No part writes what another part writes, so results do not depend on the number of threads.
"""
