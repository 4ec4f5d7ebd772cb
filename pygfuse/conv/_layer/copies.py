"""Features of several copies of a graph, ``[..., nodes, channels]``: walks for many copies at once, or for each.

To a reduction of neighbours, the channels of other copies are more channels of the same nodes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import (
    CELU,
    ELU,
    GELU,
    SELU,
    Dropout,
    Identity,
    LeakyReLU,
    Mish,
    Module,
    ModuleList,
    ReLU,
    ReLU6,
    Sequential,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
)
from torch_geometric.nn.aggr import Aggregation

from pygfuse._lib.hooks import LINEAR
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import Inputs
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import REDUCTIONS
from pygfuse.conv._layer.stacks import in_rows, in_stacks, joined, parts_of
from pygfuse.mapping.few_edges import fewest_of
from pygfuse.ops import Edges
from pygfuse.ops.within_torch import autocast
from pygfuse.ops.within_torch.intercepted import is_intercepted
from pygfuse.partial.rows.session import is_deferring

_ROW_WISE = {
    *LINEAR, Identity, Sequential, ModuleList, Dropout,
    ReLU, LeakyReLU, ELU, GELU, SiLU, Tanh, Sigmoid, Softplus, SELU, CELU, ReLU6, Mish,
}  # fmt: skip


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

    def over_copies(self, x: Tensor, edge_index: Any, given: dict[str, Any]) -> Tensor | None:
        out = self._over_copies(x.flatten(0, -3), edge_index, given)
        return None if out is None else out.unflatten(0, x.shape[:-2])

    def _over_copies(self, x: Tensor, edge_index: Any, given: dict[str, Any]) -> Tensor | None:
        """The output of several copies; None where they run as one did that is refused."""
        is_known = isinstance(self.aggr, str) and self.aggr in REDUCTIONS
        if not is_known or not _are_plain(self, x):
            return None
        prepared, inputs = self.prepare(), self._inputs(x[0], edge_index, given, False)
        if isinstance(prepared, str) or self._why_not(inputs, prepared) is not None:
            return None
        self.check(inputs, prepared)
        inputs, edges = self.find_edges(inputs)
        rows = self.before_sums(x)
        with self.noted():
            parts = parts_of(len(rows), rows.shape[2])
            found = [self._reduced(rows[part], inputs, edges, prepared) for part in parts]
        self.runs_fused(None)
        return self.after_sums(joined(found), x)

    def _reduced(self, x: Tensor, inputs: Inputs, edges: Edges, prepared: Any) -> Tensor:
        """The reduced rows of some copies, whose channels are side by side."""
        row = in_rows(x)
        return in_stacks(self.sums_of(inputs._replace(x=(row, row)), edges, prepared), len(x))


class EachCopy(FusedConv):
    """A mixin for layers whose copies of a graph are walked one after the other."""

    # whether a copy takes many functions in Python, of which PyG's operators take few for all copies
    is_long_each: ClassVar[bool] = False

    def over_copies(self, x: Tensor, edge_index: Any, given: dict[str, Any]) -> Tensor | None:
        copies = x.flatten(0, -3)
        if not self._takes_each(copies, edge_index, given):
            return None
        return torch.stack([self.fused(one, edge_index, **given) for one in copies]).unflatten(0, x.shape[:-2])

    def _takes_each(self, x: Tensor, edge_index: Any, given: dict[str, Any]) -> bool:
        """Whether copies are walked."""
        are_few = fallback.are_fewer(edge_index, fewest_of(is_short=True, is_several=self.is_long_each))
        if are_few or torch.compiler.is_compiling() or not _are_plain(self, x):
            return False
        if any(isinstance(value, Tensor) and value.dim() > 2 for value in given.values()):
            return False
        if not all(_is_row_wise(module) for module in self.modules() if module is not self):
            return False
        prepared, inputs = self.prepare(), self._inputs(x[0], edge_index, given, False)
        return not isinstance(prepared, str) and self._why_not(inputs, prepared) is None


def _are_plain(conv: FusedConv, x: Tensor) -> bool:
    """Whether nodes are the last dimension but one, and nothing looks at the layer or computes it another way."""
    is_watched = is_intercepted() or is_deferring() or autocast.is_on(x.device)
    return conv.node_dim == -2 and x.numel() > 0 and not is_watched


def _is_row_wise(module: Module) -> bool:
    """Whether what a module computes of a row does not depend on what is before the last dimension."""
    if isinstance(module, torch.nn.LayerNorm):
        return type(module) is torch.nn.LayerNorm and len(module.normalized_shape) == 1
    return type(module) in _ROW_WISE or isinstance(module, Aggregation)
