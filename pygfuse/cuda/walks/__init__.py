"""The walks of the CUDA backend: rows of a graph and all their edges.

As on a CPU there is one skeleton, by target rows (forward, and the adjoint of what belongs to the target) or along the
transpose by source rows (the adjoint of what belongs to the source): the row's node is *resident*, the other end of an
edge is *gathered*. Parts of the edges (`pygfuse.mapping`) are dealt to teams of lanes, at most a warp each, which
walk their rows together: a lane holds some channels of a row (`pygfuse.cuda.layout`), and every subteam of lanes takes
every so many edges. Of each batch of edges all loads come first, so that several edges are in flight; nothing depends
on a branch that could part the lanes of a team. Sums stay in registers until the row ends.

No two teams write to the same place, and the sums of rows that lie in several parts are combined in the order of edges:
results are the same bits in every run.
"""
