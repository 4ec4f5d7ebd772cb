"""What a walk takes in turn: its edges as a whole, or one block of them after another (`pygfuse.mapping.blocks`)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen.arguments import OfTargets, Operands
from pygfuse.cpu.edge_blocks import in_blocks
from pygfuse.cpu.operands import operands_of
from pygfuse.cpu.walked_edges import Walked, copies_of_heads, edges_of, needs_ids, nothing
from pygfuse.graph.csr import Csr
from pygfuse.mapping.blocks import count_of_blocks
from pygfuse.mapping.mapping import cut, forced, in_parts
from pygfuse.program.adjoint import BackwardPlan
from pygfuse.program.program import SOURCE


class Turn(NamedTuple):
    """Edges that are walked together.

    Attributes:
        bounds: The parts' bounds.
        rows_of: As of `Walked`.
        pieces: Number of parts.
    """

    bounds: Tensor
    rows_of: tuple[Tensor | None, ...]
    pieces: int


def turns_of(call: Call, plan: BackwardPlan, walked: Walked, of_targets: OfTargets) -> tuple[Turn, ...]:
    """What a walk of the adjoint takes in turn; where these are several, each adds to what those before it left.

    Args:
        call: The call.
        plan: What the walk computes.
        walked: All of its edges.
        of_targets: What it reads of targets.
    """
    whole = (Turn(walked.bounds, walked.rows_of, walked.pieces),)
    # what is passed along edges lies in their order; a path's rows, one part and edges in no order are walked at once
    if type(walked.edges) is not Csr or walked.parts is None or plan.passed:
        return whole
    other_bytes = bytes_of_other(operands_of(call, plan.side))
    if plan.side == SOURCE:
        other_bytes += _bytes_of_target(call, of_targets)
    blocks, mapping = blocks_of(call, walked.edges, plan.side, other_bytes), edges_of(call, plan.side)[1]
    copies = copies_of_heads(call) if plan.added else 0
    parts = [cut(block, in_parts(block, mapping, copies) if copies else mapping) for block in blocks]
    if not parts or any(of_block.num_slots for of_block in parts):
        return whole
    listed = nothing(walked.edges.indptr.dtype)
    return tuple(
        Turn(of_block.bounds, (listed, block.indptr, block.index, block.edge_id), of_block.count)
        for of_block, block in zip(parts, blocks, strict=True)
    )


def bytes_of_other(operands: Operands) -> int:
    """Bytes that a walk reads of a node at an edge's other end."""
    gathered = (*operands.gathered_heads, *operands.gathered_channels)
    return sum(values.shape[1] * values.element_size() for values in gathered)


def _bytes_of_target(call: Call, of_targets: OfTargets) -> int:
    """Bytes that an adjoint's walk by source reads of a target beside the operands."""
    row_bytes, heads_bytes = call.row_bytes, call.heads * call.like.element_size()
    extreme = call.reduce in ('max', 'min')
    return row_bytes * (2 if extreme else 1) + (3 * heads_bytes if call.bound.softmax else 0)


def blocks_of(call: Call, csr: Csr, side: str, other_bytes: int) -> tuple[Csr, ...]:
    """The blocks in which a call's walk takes its edges; none where it takes them as they are.

    Args:
        call: The call.
        csr: Its edges by rows of one side.
        side: That side.
        other_bytes: Bytes that the walk gathers of a node at the other end.
    """
    # rows of edges, which no block has together, are as many as those of nodes
    if forced() is not None or call.bound.edge_rows or call.bound.edge_products:
        return ()
    num_others = call.graph.num_targets if side == SOURCE else call.graph.num_sources
    count = count_of_blocks(csr, num_others, other_bytes)
    if count == 1:
        return ()
    blocks = in_blocks(csr, num_others, count, needs_ids(call))
    # a row's state is in one place, so no two parts may have edges of it
    return () if any(cut(block).num_slots for block in blocks) else blocks
