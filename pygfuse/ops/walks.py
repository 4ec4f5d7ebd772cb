"""The kernels of a call, forward and backward: what the operator and the eager path have in common."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from pygfuse._lib.backends import target_of
from pygfuse.call.call import Call
from pygfuse.ops import autocast
from pygfuse.ops.binding import gradients_of, is_needed, walked_features
from pygfuse.partial.paths.attach import prepare
from pygfuse.program.products import Product


def walk(call: Call, stash: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The output, its statistics and, to `stash` them, the weights of edges."""
    target = target_of(call.like.device)
    out, statistics = target.forward(call)
    return out, statistics, target.weights(call, statistics) if stash else None


def walk_back(
    call: Call,
    token: Tensor,
    operands: Mapping[str, Tensor | Product],
    out: Tensor,
    statistics: Tensor | None,
    grad_out: Tensor,
    needed: Mapping[str, bool | Product],
) -> dict[str, Tensor | Product]:
    """The gradients of operands.

    Args:
        call: The call.
        token: What stands for its graph.
        operands: Its operands, as layers give them.
        out: The output; anything of its type where the adjoint does not read it.
        statistics: What forward gave beside it.
        grad_out: The gradient that reaches it.
        needed: Which operands, and which of their parts, need a gradient.
    """
    prepare(call.graph, token)
    device = grad_out.device
    wanted = {name for name, flags in needed.items() if is_needed(flags)}
    with autocast.off(device):
        features = walked_features(call.bound, needed) if call.bound.products else ()
        found = target_of(device).backward(call, out, statistics, grad_out.contiguous(), wanted, features)
        return gradients_of(operands, found, needed)
