"""The kernels of a call, forward and backward: what the operator and the eager path have in common."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from pygfuse._lib.backends import backend_of
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.ops.binding import Needed, gradients_of
from pygfuse.ops.within_torch import autocast
from pygfuse.partial.paths.attach import prepare
from pygfuse.program.products import Product


def walk(call: Call, stash: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The output, its statistics and, to `stash` them, the weights of edges."""
    backend = backend_of(call.like.device)
    out, statistics = backend.forward(call)
    return out, statistics, backend.weights(call, statistics) if stash else None


def walk_back(
    call: Call,
    token: Tensor,
    operands: Mapping[str, Tensor | Product],
    out: Tensor,
    statistics: Tensor | None,
    grad_out: Tensor,
    needed: Needed,
) -> dict[str, Tensor | Product]:
    """The gradients of operands.

    Args:
        call: The call.
        token: What stands for its graph.
        operands: Its operands, as layers give them.
        out: The output; anything of its type where the adjoint does not read it.
        statistics: What forward gave beside it.
        grad_out: The gradient that reaches it.
        needed: Which gradients are needed.
    """
    prepare(call.graph, token)
    device = grad_out.device
    with autocast.off(device):
        grad = grad_out.contiguous()
        # an output that nobody reads may be the gradient as it came
        out = grad if out is grad_out else out
        asked = Gradient(call, out, statistics, grad, needed.names, needed.features)
        found = backend_of(device).backward(asked)
        return gradients_of(operands, found, needed.flags) if call.products or operands is not call.tensors else found


def walk_few_back(
    call: Call,
    operands: Mapping[str, Tensor | Product] | None,
    out: Tensor,
    statistics: Tensor | None,
    grad_out: Tensor,
    needed: Needed,
) -> dict[str, Tensor | Product] | None:
    """As `walk_back`, where nothing is said by a ``with`` block and autocast is off, as in backward passes; None where
    edges are not few.

    Without `operands` the gradients are those of what walks take.
    """
    asked = Gradient(call, out, statistics, grad_out.contiguous(), needed.names, needed.features)
    found = backend_of(grad_out.device).backward_of_few(asked)
    if found is None or operands is None or (operands is call.tensors and not call.products):
        return found
    return gradients_of(operands, found, needed.flags)
