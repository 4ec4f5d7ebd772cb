"""What a layer remembers of its last call, for the report."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from pygfuse._lib.modes import changed
from pygfuse._lib.note import Note
from pygfuse.graph.remade_edges import of_traces


class Noted:
    """A mixin for layers with a note."""

    # None before the first call; PyG's classes make layers of theirs ours without a call of `__init__`
    _note: Note | None = None

    @property
    def note(self) -> Note:
        """How the layer ran the last time; copies begin with an empty one."""
        if self._note is None:
            self._note = Note()
        return self._note

    @note.deleter
    def note(self) -> None:
        self.__dict__.pop('_note', None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != '_note'}

    def runs_fused(self, reason: str | None) -> bool:
        """Notes for `pygfuse.report` how a call runs, while torch compiles once a trace; True if it runs fused.

        Args:
            reason: Why it runs PyG's own path, or None.
        """
        return self._tell_note(reason, torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting())

    @torch.compiler.assume_constant_result
    def _tell_note(self, reason: str | None, is_traced: bool) -> bool:
        """`runs_fused`, of a call that torch compiles or of one that runs."""
        known = None if self._note is None else self._note.reason
        if reason != known and not (self._note is None and _is_exported()):
            # a reason of the layer as it stood may be gone when somebody asks
            self.note.tell(reason, reason is not None and reason == self.why_not())
        if reason is None and is_traced:
            self.note.remade = of_traces()
        if not torch.compiler.is_compiling() and self._note is not None and self._note.forward is not None:
            self._note.forward = None
        return reason is None

    def noted(self) -> contextlib.AbstractContextManager[None]:
        """A ``with`` block for the layer's own aggregation: passes of what runs in it are the layer's."""
        return contextlib.nullcontext() if torch.compiler.is_compiling() else changed(note=self.note)


def _is_exported() -> bool:
    """Whether the call is run for an export, and not traced: torch 2.9 refuses attributes that such a call makes."""
    # while it compiles, torch 2.9 says that it exports
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
