"""The dots of each node's heads with one or two vectors a head, as one operator of autograd."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from pygfuse._lib.backends import DTYPES, head_products_of
from pygfuse._lib.functions import applied
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import is_differentiated
from pygfuse.ops.within_torch.intercepted import is_watched, of_no_own_class


def head_products(x: Tensor, first: Tensor, second: Tensor | None = None) -> tuple[Tensor, ...] | None:
    """The dots of each node's heads with one or two vectors a head, by kernels that read the rows once.

    The rows are part of the result: what reads these has its gradient added to that of the dots as that is computed.

    Args:
        x: ``[nodes, H, C]``.
        first, second: ``[1, H, C]``; the second may be missing.

    Returns:
        The rows, and for each of the vectors ``[nodes, H]``; None where no kernel computes them: while torch compiles,
        on a device without one, for tensors of several types.

    Example:
        >>> rows, dots = head_products(torch.ones(3, 2, 4), torch.ones(1, 2, 4))
        >>> dots
        tensor([[4., 4.],
                [4., 4.],
                [4., 4.]])
    """
    vectors = (first,) if second is None else (first, second)
    if not torch.compiler.is_compiling():
        if has_torch_function((x, *vectors)):
            return handle_torch_function(head_products, (x, *vectors), x, first, second)
        x, *vectors = of_no_own_class((x, *vectors))
    if is_watched((x, *vectors)) or head_products_of(x.device) is None or x.dtype not in DTYPES[x.device.type]:
        return None
    if not x.numel() or any(vector.dtype is not x.dtype or vector.device != x.device for vector in vectors):
        return None
    if not torch.is_grad_enabled():
        return x, *_products(x, vectors)
    return applied(_HeadProducts, x, *vectors)


def _products(x: Tensor, vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return head_products_of(x.device).products(x.contiguous(), *(vector.contiguous() for vector in vectors))


class _HeadProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *vectors):
        ctx.save_for_backward(x, *vectors)
        ctx.set_materialize_grads(False)
        return x.view_as(x), *_products(x, vectors)

    @staticmethod
    @in_types_of_forward
    def backward(ctx, of_rows, *grads):
        x, *vectors = ctx.saved_tensors
        grads = [x.new_zeros(x.shape[:2]) if grad is None else grad for grad in grads]
        there = grads if of_rows is None else [of_rows, *grads]
        if any(map(is_differentiated, there)) or is_watched((x, *there)):
            terms = [grad.unsqueeze(-1) * vector for grad, vector in zip(grads, vectors, strict=True)]
            of_x = sum(terms if of_rows is None else [*terms, of_rows])
            return of_x, *((x * grad.unsqueeze(-1)).sum(dim=0, keepdim=True) for grad in grads)
        of_vectors = [[tensor.contiguous() for tensor in given] for given in (vectors, grads)]
        begun = None if of_rows is None else of_rows.contiguous()
        return head_products_of(x.device).products_adjoint(x.contiguous(), *of_vectors, begun)
