"""Features of several copies of a graph, ``[copies, nodes, channels]``: walks for many copies at once.

To a reduction of neighbours, the channels of other copies are more channels of the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pygfuse.conv._checks import Inputs
from pygfuse.conv._layer import FusedConv
from pygfuse.conv._spec import REDUCTIONS
from pygfuse.ops import Edges, autocast
from pygfuse.ops.intercepted import is_intercepted
from pygfuse.partial.rows.session import is_deferring

# numbers in a row that is walked at once: kernels are compiled for each width
_WIDEST = 512


class OverCopies(FusedConv):
    """A mixin for layers of sums, means and extremes of neighbours, which say what comes before and behind them."""

    def before_sums(self, x: Tensor) -> Tensor:
        """What is reduced of features ``[copies, nodes, channels]``."""
        return x

    def after_sums(self, sums: Tensor, x: Tensor) -> Tensor:
        """The layer's output, of reduced rows and of features, both of all copies."""
        raise NotImplementedError

    def sums_of(self, inputs: Inputs, edges: Edges, prepared: Any) -> Tensor:
        """The reduced rows of one set of features."""
        return FusedConv.aggregate_edges(self, inputs, edges, prepared)[0]

    def fused(self, x: Any, edge_index: Any, **given: Any) -> Any:
        """As of `FusedConv`, also of features of several copies of the graph."""
        if isinstance(x, Tensor) and x.dim() == 3:
            out = self._over_copies(x, edge_index, given)
            if out is not None:
                return out
        return super().fused(x, edge_index, **given)

    def _over_copies(self, x: Tensor, edge_index: Any, given: dict[str, Any]) -> Tensor | None:
        """The output of several copies; None where they run as one did that is refused."""
        is_known = isinstance(self.aggr, str) and self.aggr in REDUCTIONS and self.node_dim == -2
        if not is_known or x.numel() == 0 or is_intercepted() or is_deferring() or autocast.is_on(x.device):
            return None
        prepared, inputs = self.prepare(), self._inputs(x[0], edge_index, given, False)
        if isinstance(prepared, str) or self._why_not(inputs, prepared) is not None:
            return None
        self.check(inputs, prepared)
        inputs, edges = self.find_edges(inputs)
        rows = self.before_sums(x)
        with self.noted():
            found = [self._reduced(part, inputs, edges, prepared) for part in _parts(rows)]
        self.runs_fused(None)
        return self.after_sums(found[0] if len(found) == 1 else torch.cat(found), x)

    def _reduced(self, x: Tensor, inputs: Inputs, edges: Edges, prepared: Any) -> Tensor:
        """The reduced rows of some copies, whose channels are side by side."""
        copies, nodes, channels = x.shape
        row = x.transpose(0, 1).reshape(nodes, copies * channels)
        out = self.sums_of(inputs._replace(x=(row, row)), edges, prepared)
        return out.view(len(out), copies, channels).transpose(0, 1)


def _parts(x: Tensor) -> Iterator[Tensor]:
    """Copies that are walked at once: powers of two, so that any number of copies takes few kernels.

    Example:
        >>> [len(part) for part in _parts(torch.ones(13, 5, 64))]
        [8, 4, 1]
    """
    first, most = 0, max(_WIDEST // max(x.shape[2], 1), 1)
    while first < len(x):
        count = 1 << (min(len(x) - first, most).bit_length() - 1)
        yield x[first : first + count]
        first += count
