"""Networks on chunks of edges where nothing traces: one ``autograd.Function`` around what the operators run.

An operator's schema, and lists that are flattened for it, take longer than a small graph's edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse._lib.functions import untransformed
from pygfuse.ops.edge_mlp.autograd import gradients_of, keep
from pygfuse.ops.edge_mlp.reduction import network_gradients, network_values
from pygfuse.ops.edges import Edges
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.intercepted import is_watched


def network_eagerly(
    tensors: Sequence[Tensor], text: str, edges: Edges, reduce: str, with_state: bool
) -> tuple[Tensor, Tensor]:
    """The reduced values of a network, and those of edges.

    Args:
        tensors, text: The stages, as `pygfuse.ops.edge_mlp.stages.written` gives them; nobody intercepts them.
        edges: The edges.
        reduce, with_state: As of `pygfuse.ops.edge_mlp.reduction.network_values`.
    """
    rest = edges.num_sources, edges.num_targets, edges.flow, reduce, with_state
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        out, _, state = _apply(text, edges.token, rest, *tensors)
    else:
        out, _, state = network_values(tensors, text, edges.token, *rest)
    return out, state


class _EdgeNetwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx, text, token, rest, *tensors):
        output = network_values(tensors, text, token, *rest)
        keep(ctx, (tensors, text, token, *rest), output)
        return output

    @staticmethod
    @in_types_of_forward
    def backward(ctx, *grads):
        needed = ctx.needs_input_grad[3:]
        is_plain = not is_watched([grad for grad in grads if grad is not None])
        compute = network_gradients if is_plain else torch.ops.pygfuse.edge_network_backward
        return None, None, None, *gradients_of(ctx, needed, ctx.next_functions[-len(needed) :], grads, compute)


_apply = untransformed(_EdgeNetwork)
