"""Errors that only one of PyG and pygfuse raises, by kind, each with its reason."""

from __future__ import annotations

import re

from tests.properties.case import ONLY_OURS, ONLY_PYG, Outcome

# the side that raises, an expression for the kind of the error, the reason
KNOWN: tuple[tuple[str, str, str], ...] = (
    (ONLY_PYG, r'uncoalesced tensor', 'a COO matrix that is not coalesced is taken: docs/differences.md'),
    (ONLY_PYG, r"layout 'torch.sparse_csc'|CSC matrices", 'a CSC matrix is taken: docs/differences.md'),
    (
        ONLY_PYG,
        r'Cannot set version_counter',
        'EdgeIndex cannot sort itself in inference mode',
    ),
    (ONLY_PYG, r"sparse.*not implemented for 'BFloat#'", 'a narrow product of matrices is a walk here'),
    (ONLY_PYG, r'FAConv: RuntimeError: The size of tensor a', 'weights of shape [E, 1] are weights'),
    (ONLY_PYG, r'GraphConv: IndexError: index out of range in self', "PyG's product with an EdgeIndex without edges"),
    (ONLY_PYG, r'_sparse_mm_reduce_impl_backward', 'a mean over a matrix has a second derivative'),
    (ONLY_PYG, r'GMMConv: RuntimeError: cannot reshape tensor of # elements', 'PyG cannot view messages of no edges'),
    (
        ONLY_PYG,
        r"'message_and_aggregate' not implemented",
        'PyG writes the propagate of a class once, for whether its first layer in the process can run as a product',
    ),
    (ONLY_PYG, r'GMMConv: ValueError: not enough values', 'features of shape [E] are of one dimension'),
    (ONLY_OURS, r"'tuple' object has no attribute 'chunk'", 'what is loaded from a file keeps its decomposed_layers'),
    (ONLY_OURS, r'took a result of layers within', 'a function that would lose a gradient says so, and what to do'),
    (
        ONLY_OURS,
        r'CheckpointError.*different metadata',
        'active saves what is read, when it is read',
    ),
)


def reason_for(outcome: Outcome) -> str | None:
    """Why an error of one side only is no fault; None if it is one."""
    return next(
        (reason for side, kind, reason in KNOWN if side == outcome.kind and re.search(kind, outcome.text)), None
    )
