"""A network on so few edges that each has a row at once: by a kernel, or by PyTorch's operators.

No graph is made of the edges: a loop over chunks of them would take longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pygfuse.ops.edge_mlp.few_edges import kernels_of, network_along
from pygfuse.ops.edge_mlp.reference import reduced, values_of
from pygfuse.ops.edge_mlp.stages import EdgeStage, widest_of
from pygfuse.ops.edges import Edges
from pygfuse.ops.listed import are_taken_at_once, are_taken_in_kernels, ends_of
from pygfuse.program.program import SOURCE, TARGET


def network_at_once(
    stages: Sequence[EdgeStage], edges: Edges, reduce: str, with_state: bool
) -> tuple[Tensor, Tensor | None] | None:
    """The reduced values, no rows where `reduce` is 'none', and those of edges; None where edges are not so few.

    Ties in a maximum share its gradient.

    Args:
        stages: What happens on an edge; the first is a `Begin`. Nobody intercepts their tensors.
        edges: The edges.
        reduce: ``'sum'``, ``'max'`` or ``'none'``.
        with_state: Whether somebody reads the values of edges; else they may be None.

    Returns:
        ``[num_targets, channels]``, 0 where there are no edges, and ``[edges, channels]``.

    Raises:
        ValueError: If an edge names a node that is not there, saying which.
    """
    row = widest_of(stages), stages[0].first.element_size()
    is_tiny = are_taken_at_once(edges, *row)
    # of many, the gradient of a maximum is that of winning edges alone, which chunks make use of
    if is_tiny or (reduce != 'max' and are_taken_in_kernels(edges, *row)):
        network = kernels_of(stages, edges, reduce)
        if network is not None:
            return network_along(network, stages, edges, with_state)
    return _by_torch(stages, edges, reduce) if is_tiny else None


def _by_torch(stages: Sequence[EdgeStage], edges: Edges, reduce: str) -> tuple[Tensor, Tensor]:
    """The same by operators, of which autograd keeps what it keeps of PyG's layer."""
    with ends_of(edges, _reads(stages, reduce)) as (sources, targets):
        values = values_of(stages, sources, targets)
        return reduced(values, targets, edges.num_targets, reduce), values


def _reads(stages: Sequence[EdgeStage], reduce: str) -> set[str]:
    """By which ends rows are indexed."""
    reads = set() if reduce == 'none' else {TARGET}
    if any(getattr(stage, 'source', None) is not None for stage in stages):
        reads.add(SOURCE)
    return reads | ({TARGET} if stages[0].target is not None else set())
