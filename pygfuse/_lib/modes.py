"""What ``with`` blocks say about the calls inside them: one value, in one context variable.

Each field is set by a public function in the folder that reads it. Three of them switch off the ideas of "Understanding
GNN Computational Graph" (MLSys 2022, sections 4 to 6), so that each one's share can be measured: linear maps are
reorganised to run once a node instead of once an edge; the operators on edges are fused into one walk; backward
recomputes what forward had on edges. Each builds on the one before.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class Modes:
    """What is said here.

    Attributes:
        mapping: The mapping that `pygfuse.force_mapping` forces, or None.
        order: The order of a linear map and a sum over edges that is forced (`pygfuse.mapping.map_order`), or None.
        group_sizes: The chooser that `pygfuse.group_sizes` names, or None.
        shapes: A set that collects the shapes of all graphs that are walked by rows, or None.
        used_once: Whether graphs that are met for the first time will not be met again (`pygfuse.used_once`).
        execution_paths: What `pygfuse.execution_paths` says, or None.
        active_blocks: How many `pygfuse.active` blocks are open.
        note: Where a layer learns how its aggregations run, or None outside of one.
        reorganisation: Layers in which a linear map follows a gather take it apart. Off, they compute it on edges.
        fusion: Programs run as walks. Off, PyTorch computes them with tensors of edges x features.
        recomputation: Backward walks compute the weights of edges again. Off, forward keeps them, ``[edges, heads]``.
    """

    mapping: Any = None
    order: str | None = None
    group_sizes: Any = None
    shapes: set | None = None
    used_once: bool = False
    execution_paths: bool | None = None
    active_blocks: int = 0
    note: Any = None
    reorganisation: bool = True
    fusion: bool = True
    recomputation: bool = True


_DEFAULTS = Modes()
_modes: contextvars.ContextVar[Modes] = contextvars.ContextVar('pygfuse_modes', default=_DEFAULTS)


def modes() -> Modes:
    """What is said here; nothing while torch compiles."""
    return _DEFAULTS if torch.compiler.is_compiling() else _modes.get()


def nothing_is_said() -> bool:
    """Whether no ``with`` block of pygfuse is open here."""
    return _modes.get() is _DEFAULTS


def only_a_note_is_said() -> bool:
    """Whether what is open here, if anything, says no more than which layer's aggregations run."""
    said = _modes.get()
    return said is _DEFAULTS or {**said.__dict__, 'note': None} == _DEFAULTS.__dict__


class changed(contextlib.ContextDecorator):
    """Changes fields of `Modes` for this thread within a ``with`` block.

    Example:
        >>> with changed(used_once=True):
        ...     modes().used_once
        True
        >>> modes().used_once
        False
    """

    def __init__(self, **fields: Any) -> None:
        self._fields = fields
        self._tokens: list[contextvars.Token] = []

    def __enter__(self) -> None:
        # as `dataclasses.replace` does, in a tenth of its time: each call of a layer comes here
        said = object.__new__(Modes)
        said.__dict__.update(_modes.get().__dict__, **self._fields)
        self._tokens.append(_modes.set(said))

    def __exit__(self, *raised: object) -> None:
        _modes.reset(self._tokens.pop())


def ablation(
    reorganisation: bool = True, fusion: bool = True, recomputation: bool = True
) -> contextlib.AbstractContextManager[None]:
    """Turns ideas off for the forward passes of this thread within a ``with`` block, and for their backward passes.

    The numbers stay the same; time and memory do not.

    Args:
        reorganisation, fusion, recomputation: See `Modes`.

    Example:
        >>> import torch
        >>> from pygfuse.conv import GATConv
        >>> conv, x, edge_index = GATConv(8, 8), torch.randn(9, 8), torch.randint(9, (2, 40))
        >>> with ablation(fusion=False):
        ...     slow = conv(x, edge_index)
        >>> torch.allclose(slow, conv(x, edge_index), atol=1e-6)
        True
    """
    return changed(reorganisation=reorganisation, fusion=fusion, recomputation=recomputation)
