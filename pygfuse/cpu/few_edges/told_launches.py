"""Launches along few edges among lines: each checks the edges, and tells how many it found."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from pygfuse.codegen.launch_lines import LaunchLines, told_by
from pygfuse.codegen.packing import bits_of, written_words
from pygfuse.cpu.compilation.in_turn import OnThreads


def write_told(
    lines: LaunchLines,
    launch: OnThreads,
    parts: int,
    arguments: tuple,
    named: Mapping[str, object],
    told: str,
    unread: Collection[str],
) -> None:
    """Writes a launch that sets a name to the number of edges, or raises an IndexError if one names a node that is not
    there.

    Args:
        lines: Where it is written.
        launch, parts, arguments: What is launched, in how many parts, with what.
        named: What stands for arguments, by their names.
        told: The name, of the argument that is the address of the number.
        unread: The names of arguments whose lengths nobody reads: they may have no tensor.
    """
    kept: list[Tensor] = []
    lengths = {f'{name}.numel()' for name in unread}
    words = ['0' if word in lengths else word for word in written_words(parts, arguments, named, kept)]
    lines.keep(kept)
    lines.knows('bits', bits_of)
    lines.knows('refuse_edges', _refuse)
    lines.launch(told_by(launch, words, told, 'refuse_edges'))


def _refuse() -> None:
    raise IndexError('an edge names a node that is not there')
