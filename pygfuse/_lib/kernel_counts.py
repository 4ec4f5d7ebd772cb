"""How many kernels this process compiled, and how many it found on disk."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class KernelCounts:
    """Numbers of kernels of this process.

    Attributes:
        compiled: Compiled here.
        found: Compiled before, by this process or another, and read from the folder of compiled kernels.
    """

    compiled: int = 0
    found: int = 0


COUNTS = KernelCounts()
