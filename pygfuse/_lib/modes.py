"""Switches for the three ideas that pygfuse rests on, so that each one's share can be measured.

They are those of "Understanding GNN Computational Graph" (MLSys 2022, sections 4 to 6): linear maps are reorganised to
run once a node instead of once an edge; the operators on edges are fused into one walk; backward recomputes what
forward had on edges. Each builds on the one before.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator

import torch


@dataclasses.dataclass(frozen=True)
class Switches:
    """What is on.

    Attributes:
        reorganisation: Layers in which a linear map follows a gather take it apart. Off, they compute it on edges.
        fusion: Programs run as walks. Off, PyTorch computes them with tensors of edges x features.
        recomputation: Backward walks compute the weights of edges again. Off, forward keeps them, ``[edges, heads]``.
    """

    reorganisation: bool = True
    fusion: bool = True
    recomputation: bool = True


_ALL_ON = Switches()
_switches: contextvars.ContextVar[Switches] = contextvars.ContextVar('pygfuse_switches', default=_ALL_ON)


def switches() -> Switches:
    """What is on here; all of it while torch compiles."""
    return _ALL_ON if torch.compiler.is_compiling() else _switches.get()


@contextlib.contextmanager
def ablation(reorganisation: bool = True, fusion: bool = True, recomputation: bool = True) -> Iterator[None]:
    """Turns ideas off for the forward passes of this thread within a ``with`` block, and for their backward passes.

    The numbers stay the same; time and memory do not.

    Args:
        reorganisation, fusion, recomputation: See `Switches`.

    Example:
        >>> import torch
        >>> from pygfuse.conv import GATConv
        >>> conv, x, edge_index = GATConv(8, 8), torch.randn(9, 8), torch.randint(9, (2, 40))
        >>> with ablation(fusion=False):
        ...     slow = conv(x, edge_index)
        >>> torch.allclose(slow, conv(x, edge_index), atol=1e-6)
        True
    """
    token = _switches.set(Switches(reorganisation, fusion, recomputation))
    try:
        yield
    finally:
        _switches.reset(token)
