"""A ``with`` block in which layers are deferred."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from pygfuse._lib.modes import changed, modes
from pygfuse.ops.within_torch import autocast
from pygfuse.partial.rows.row_set import RowSet

RAISE, NAN = 'raise', 'nan'


class Session:
    """Such a block: what is deferred in it, and what may be read of that after its end.

    Attributes:
        rows: The rows that may be read; None for all.
        total: How many rows there are.
        elsewhere: ``'raise'`` or ``'nan'``: what reading others does.
        defer: Gives, of a session, a function and its arguments, the deferred result, or NotImplemented.
        is_open: Whether the block has not ended; until then, all rows may be read.
    """

    def __init__(self, rows: RowSet | None, total: int, elsewhere: str, defer: Callable[..., Any]) -> None:
        self.rows = rows
        self.total = total
        self.elsewhere = elsewhere
        self.defer = defer
        self.is_open = True


def deferring() -> contextlib.AbstractContextManager[None]:
    """Says that layers are deferred within a ``with`` block."""
    return changed(active_blocks=modes().active_blocks + 1)


def is_deferring() -> bool:
    """Whether layers are deferred here."""
    return modes().active_blocks > 0


def runs_at_once() -> bool:
    """Whether functions run at once all the same: what is compiled, traced or cast automatically."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or autocast.is_on_anywhere()
