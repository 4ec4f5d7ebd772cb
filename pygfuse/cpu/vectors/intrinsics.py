"""Functions that write LLVM's instructions themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, eq=False)
class Intrinsic:
    """A function of a kernel's body that is called with types when the body is translated.

    Attributes:
        define: Takes the types of the arguments; returns a signature of Numba's, whose arguments they are converted
            to, and ``emit(context, builder, signature, arguments)``, which gives the value.
    """

    define: Callable


def intrinsic(define: Callable) -> Intrinsic:
    """Makes a function that kernels' bodies call, see `Intrinsic`."""
    return Intrinsic(define)
