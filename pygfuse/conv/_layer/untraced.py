"""Calls that ``torch.compile`` does not trace, and that run fused between what it compiles before and behind them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from pygfuse.conv._layer.checks import is_edge_index
from pygfuse.mapping.few_edges import fewest_compiled

# why a call that would run fused without a trace has no fused form in one
NOT_TRACED = 'torch compiles'
WEIGHTS_NOT_TRACED = 'return_attention_weights while torch compiles'
# what stands for a call that runs as it would without a trace
UNTRACED = 'torch compiles nothing of it'


@torch.compiler.assume_constant_result
def may_break() -> bool:
    """Whether torch may compile what is before a call and what is behind it apart: unless it was told to compile all
    as one graph, or exports, it does so wherever it cannot trace something.
    """
    convert: Any = sys.modules.get('torch._dynamo.symbolic_convert')
    tracer = getattr(getattr(convert, 'tls', None), 'current_tx', None)
    is_one = getattr(tracer, 'one_graph', True) or getattr(tracer, 'error_on_graph_break', False)
    return not (is_one or torch.compiler.is_exporting())


def are_apart(adjacencies: Iterable[Any]) -> bool:
    """Whether a call of a layer that torch never traces runs between two traces: not along few edges.

    Args:
        adjacencies: Those of all types of edges.
    """
    counts = [adjacency.shape[1] for adjacency in adjacencies if is_edge_index(adjacency)]
    return may_break() and not guard_or_false(sum(counts) < fewest_compiled(True))
