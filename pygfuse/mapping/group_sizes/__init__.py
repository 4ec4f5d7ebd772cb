"""Structure-aware group sizes: how many edges and rows a worker takes at a time.

"Accelerating Backward Aggregation in GCN Training with Execution Path Preparing on GPUs" (Xu et al., section 5): small
groups balance the load, large ones cost less to begin and to put together, and which size is best depends on the
structure of the graph, and so differs between the execution paths of one. A group is what a thread of a CPU or a team
of lanes of a GPU takes: `pygfuse.mapping.mapping.Mapping.part_work`.

Three ways to choose one stand beside each other, a file each: `regression`, `learned` and `search`. `chooser` says
which is in force.
"""

from pygfuse.mapping.group_sizes.chooser import group_sizes

__all__ = ['group_sizes']
