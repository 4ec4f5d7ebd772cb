"""Forward passes of which only some rows are wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pygfuse.ops import aggregate
from pygfuse.partial.rows.row_set import RowSet
from pygfuse.partial.rows.rules import defer
from pygfuse.partial.rows.session import NAN, RAISE, Session, deferring, runs_at_once


class _Deferring(TorchFunctionMode):
    """Begins to defer at linear maps of rows and at aggregations."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        # what a compiler captures is mapped, too, and is no tensor
        is_map = func is F.linear and isinstance(args[0] if args else kwargs.get('input'), Tensor)
        if (is_map or func is aggregate) and not runs_at_once():
            found = defer(self.session, func, args, kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


@contextlib.contextmanager
def active(mask: Tensor, elsewhere: str = RAISE) -> Iterator[None]:
    """Computes, within a ``with`` block, only the rows that are read of what layers give.

    Where a loss reads the outputs of few nodes, the last layer is computed at these, the one before it at these and
    their neighbours, and so on back to the features; gradients flow back the same way. Loss and gradients are those of
    the whole computation, up to rounding, dropout included. Models stay as they are: linear maps of rows and
    aggregations of fused layers are deferred until something reads their result. Functions that compute each row from
    the same rows (activations, dropout, layer normalisation, concatenation of channels, ...) are deferred with them;
    any other function reads all rows, so that, say, batch normalisation takes its statistics from all nodes, and what
    comes before it is computed whole. Where nearly all edges of all layers would be walked, all rows are computed.
    `pygfuse.report` shows how many rows each layer computed.

    Within the block whatever is read is computed. What leaves it has the rows of `mask` and no others. Models that are
    compiled by ``torch.compile``, and those under autocast, compute all rows.

    On a small or dense graph few rows may save less than choosing them takes. A first block finds that out; while its
    model lives, later ones for the same rows then compute all rows as without a block, unless others have to be NaN.

    Args:
        mask: The nodes whose outputs are wanted, ``[nodes]``, bool.
        elsewhere: What reading an output of another node does after the block: ``'raise'`` a ValueError, or give
            ``'nan'``.

    Raises:
        ValueError: If `mask` is no mask, or there is no such `elsewhere`.

    Example:
        >>> from pygfuse.conv import GCNConv
        >>> conv, x, edge_index = GCNConv(8, 8), torch.randn(9, 8), torch.randint(9, (2, 40))
        >>> mask = torch.arange(9) < 3
        >>> with active(mask):
        ...     out = conv(x, edge_index).relu()
        >>> torch.allclose(out[mask], conv(x, edge_index).relu()[mask], atol=1e-6)
        True
        >>> out[5]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Reading row 5 needs rows outside of the mask given to `pygfuse.active`: ...
    """
    if not isinstance(mask, Tensor) or mask.dim() != 1 or mask.dtype != torch.bool:
        got = f'shape {list(mask.shape)}, {mask.dtype}' if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"Expected 'mask' to be a bool tensor of shape [nodes] (got {got})")
    if elsewhere not in (RAISE, NAN):
        raise ValueError(f"Expected 'elsewhere' to be 'raise' or 'nan' (got {elsewhere!r})")
    rows = RowSet.of(mask, len(mask))
    if elsewhere == RAISE and rows is not None and rows.costs_more:
        yield
        return
    session = Session(rows, len(mask), elsewhere, defer)
    try:
        with deferring(), _Deferring(session):
            yield
    finally:
        session.is_open = False
