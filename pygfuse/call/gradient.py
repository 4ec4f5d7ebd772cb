"""What a backend is asked for behind a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from torch import Tensor

from pygfuse.call.call import Call


@dataclasses.dataclass(eq=False, slots=True)
class Gradient:
    """The gradients of some of a call's operands.

    Attributes:
        call: What ``forward`` was called with.
        out: Its first result.
        statistics: Its second result.
        grad_out: The gradient that reaches the output, contiguous.
        needed: Names of operands.
        features: Those of them that are products whose features need a gradient; else it is None.
    """

    call: Call
    out: Tensor
    statistics: Tensor | None
    grad_out: Tensor
    needed: Collection[str]
    features: Collection[str] = ()
