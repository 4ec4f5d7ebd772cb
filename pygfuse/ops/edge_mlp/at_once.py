"""A network on so few edges that each has a row at once: PyTorch's operators take less than a loop over chunks.

No graph is made of the edges, and autograd keeps what it keeps of PyG's layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pygfuse.ops.edge_mlp.reference import reduced, values_of
from pygfuse.ops.edge_mlp.stages import EdgeStage
from pygfuse.ops.edges import Edges
from pygfuse.ops.listed import ends_of
from pygfuse.program.program import SOURCE, TARGET


def network_at_once(stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> tuple[Tensor, Tensor]:
    """The reduced values, no rows where `reduce` is 'none', and those of edges; ties in a maximum share its gradient.

    Args:
        stages: What happens on an edge; the first is a `Begin`.
        edges: The edges, as `pygfuse.ops.listed.are_taken_at_once` takes them.
        reduce: ``'sum'``, ``'max'`` or ``'none'``.

    Returns:
        ``[num_targets, channels]``, 0 where there are no edges, and ``[edges, channels]``.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.
    """
    with ends_of(edges, _reads(stages, reduce)) as (sources, targets):
        values = values_of(stages, sources, targets)
        return reduced(values, targets, edges.num_targets, reduce), values


def _reads(stages: Sequence[EdgeStage], reduce: str) -> set[str]:
    """By which ends rows are indexed."""
    reads = set() if reduce == 'none' else {TARGET}
    if any(getattr(stage, 'source', None) is not None for stage in stages):
        reads.add(SOURCE)
    return reads | ({TARGET} if stages[0].target is not None else set())
