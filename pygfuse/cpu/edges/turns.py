"""What a walk takes in turn: its edges as a whole, or one block of them after another (`pygfuse.mapping.blocks`)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.codegen.arguments import OfTargets, Operands
from pygfuse.cpu.edges.edge_blocks import in_blocks
from pygfuse.cpu.edges.walked_edges import Walked, copies_of_heads, edges_of, needs_ids, nothing
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


def turns_of(
    call: Call, plan: BackwardPlan, walked: Walked, operands: Operands, of_targets: OfTargets
) -> tuple[Turn, ...]:
    """What a walk of the adjoint takes in turn; where these are several, each adds to what those before it left.

    Args:
        call: The call.
        plan: What the walk computes.
        walked: All of its edges.
        operands, of_targets: What it reads.
    """
    blocks: tuple[Csr, ...] = ()
    # what is passed along edges lies in their order; a path's rows, one part and edges in no order are walked at once
    if isinstance(walked.edges, Csr) and walked.parts is not None and not plan.passed:
        beside = _of_targets_gathered(call, of_targets) if plan.side == SOURCE else ()
        blocks = blocks_of(call, walked.edges, (*gathered_by(operands), *beside))
    if blocks:
        mapping, copies = edges_of(call, plan.side)[1], copies_of_heads(call) if plan.added else 0
        parts = [cut(block, in_parts(block, mapping, copies) if copies else mapping) for block in blocks]
        if not any(of_block.num_slots for of_block in parts):
            listed = nothing(walked.edges.indptr.dtype)
            return tuple(
                Turn(of_block.bounds, (listed, block.indptr, block.index, block.edge_id), of_block.count)
                for of_block, block in zip(parts, blocks, strict=True)
            )
    return (Turn(walked.bounds, walked.rows_of, walked.pieces),)


def _of_targets_gathered(call: Call, of_targets: OfTargets) -> tuple[Tensor, ...]:
    """What an adjoint's walk by source gathers of targets beside operands."""
    reached = (of_targets.out,) if call.reduce in ('max', 'min') else ()
    heads = (of_targets.normalisers, of_targets.delta) if call.bound.softmax else ()
    return (of_targets.grad_out, *reached, *heads)


def gathered_by(operands: Operands) -> tuple[Tensor, ...]:
    """The operands of nodes at edges' other ends."""
    return (*operands.gathered_heads, *operands.gathered_channels)


def blocks_of(call: Call, csr: Csr, gathered: tuple[Tensor, ...]) -> tuple[Csr, ...]:
    """The blocks in which a call's walk takes its edges; none where it takes them as they are.

    Args:
        call: The call.
        csr: Its edges by row.
        gathered: What the walk gathers of nodes at their other ends, each ``[nodes, ...]``.
    """
    # rows of edges, which no block has together, are as many as those of nodes
    if not gathered or forced() is not None or call.bound.edge_rows or call.bound.edge_products:
        return ()
    num_others = len(gathered[0])
    count = count_of_blocks(csr, num_others, sum(values.nbytes for values in gathered) // max(num_others, 1))
    if count == 1:
        return ()
    blocks = in_blocks(csr, num_others, count, needs_ids(call))
    # a row's state is in one place, so no two parts may have edges of it
    return () if any(cut(block).num_slots for block in blocks) else blocks
