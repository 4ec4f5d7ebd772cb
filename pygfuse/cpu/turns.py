"""What a walk takes in turn: its edges as a whole, or one block of them after another (`pygfuse.mapping.blocks`)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen.arguments import Operands
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


def turns_of(call: Call, plan: BackwardPlan, walked: Walked) -> tuple[Turn, ...]:
    """What a walk of the adjoint takes in turn; where these are several, each adds to what those before it left.

    Args:
        call: The call.
        plan: What the walk computes.
        walked: All of its edges.
    """
    whole = (Turn(walked.bounds, walked.rows_of, walked.pieces),)
    # what is passed along edges lies in their order; a path's rows, one part and edges in no order are walked at once
    if type(walked.edges) is not Csr or walked.parts is None or plan.passed:
        return whole
    of_target = _bytes_of_target(call) if plan.side == SOURCE else 0
    blocks = blocks_of(call, walked.edges, plan.side, operands_of(call, plan.side), of_target)
    mapping = edges_of(call, plan.side)[1]
    copies = copies_of_heads(call) if plan.added else 0
    parts = [cut(block, in_parts(block, mapping, copies) if copies else mapping) for block in blocks]
    if not parts or any(of_block.num_slots for of_block in parts):
        return whole
    listed = nothing(walked.edges.indptr.dtype)
    return tuple(
        Turn(of_block.bounds, (listed, block.indptr, block.index, block.edge_id), of_block.count)
        for of_block, block in zip(parts, blocks, strict=True)
    )


def _bytes_of_target(call: Call) -> int:
    """Bytes that an adjoint's walk by source reads of a target beside the operands."""
    rows = 2 if call.reduce in ('max', 'min') else 1
    heads = 3 * call.heads if call.bound.softmax else 0
    return rows * call.row_bytes + heads * call.like.element_size()


def blocks_of(call: Call, csr: Csr, side: str, operands: Operands, more_bytes: int = 0) -> tuple[Csr, ...]:
    """The blocks in which a call's walk takes its edges; none where it takes them as they are.

    Args:
        call: The call.
        csr: Its edges by rows of one side.
        side: That side.
        operands: What the walk reads.
        more_bytes: Bytes that it gathers of a node at the other end beside them.
    """
    # rows of edges, which no block has together, are as many as those of nodes
    if forced() is not None or call.bound.edge_rows or call.bound.edge_products:
        return ()
    num_others = call.graph.num_targets if side == SOURCE else call.graph.num_sources
    gathered = (*operands.gathered_heads, *operands.gathered_channels)
    other_bytes = sum(values.shape[1] * values.element_size() for values in gathered) + more_bytes
    count = count_of_blocks(csr, num_others, other_bytes)
    if count == 1:
        return ()
    blocks = in_blocks(csr, num_others, count, needs_ids(call))
    # a row's state is in one place, so no two parts may have edges of it
    return () if any(cut(block).num_slots for block in blocks) else blocks
