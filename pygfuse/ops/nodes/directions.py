"""Rows of length one, and those times a number: the operands of cosines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse._lib.backends import DTYPES, directions_of
from pygfuse._lib.functions import applied
from pygfuse.ops.nodes.derived import Derived, Source
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.program.program import SOURCE, TARGET

# shorter rows are divided by it, as `torch.nn.functional.normalize` does
_LEAST = 1e-12


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1, keepdim=True)


def _compute(rows: Mapping[str, Tensor], given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    x_norm = rows[SOURCE] / _lengths(rows[SOURCE]).clamp_min(_LEAST)
    return x_norm, given[0] * x_norm


def _adjoint(
    found: Mapping[str, Tensor], operands: Mapping[str, Tensor], rows: Mapping[str, Tensor], given: Sequence[Tensor]
) -> dict[Source, Tensor]:
    (beta,), x_norm, of_scaled = given, operands['x_norm'], found['x_norm_dst']
    gradients: dict[Source, Tensor] = {0: (of_scaled * x_norm).sum().view(beta.shape)}
    if 'x_norm' in found:
        grad, lengths = torch.addcmul(found['x_norm'], of_scaled, beta), _lengths(rows[SOURCE])
        # no step along a row changes what is divided by its length
        along = (grad * x_norm).sum(dim=1, keepdim=True).masked_fill_(lengths < _LEAST, 0.0)
        gradients[SOURCE] = torch.addcmul(grad, x_norm, along, value=-1.0).div_(lengths.clamp_min_(_LEAST))
    return gradients


# the operands of `pygfuse.program.library.agnn.AGNN`, ``[nodes, channels]``, of the rows of one set of nodes and a
# temperature, ``[1]``
DIRECTIONS = Derived({'x_norm': (SOURCE,), 'x_norm_dst': (TARGET, 0)}, _compute, _adjoint)


def directions(x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, the same divided by their lengths, and those times a number; by a kernel where there is one.

    The rows are part of the result: what reads these has its gradient added to that of the others as that is computed.

    Args:
        x: ``[..., nodes, channels]``.
        beta: The number, ``[1]``.

    Returns:
        Three tensors of the shape of `x`.

    Example:
        >>> directions(torch.tensor([[3.0, 4.0]]), torch.tensor([10.0]))
        (tensor([[3., 4.]]), tensor([[0.6000, 0.8000]]), tensor([[6., 8.]]))
    """
    if torch.compiler.is_compiling() or not _have_kernel(x, beta):
        return _by_torch(x, beta)
    if torch.is_grad_enabled():
        return applied(_Directions, x, beta)
    return x, *directions_of(x.device).directions(x.contiguous(), beta, _LEAST)[:2]


def _by_torch(x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x_norm = F.normalize(x, dim=-1, eps=_LEAST)
    return x, x_norm, beta * x_norm


def _have_kernel(x: Tensor, beta: Tensor) -> bool:
    if is_watched((x, beta)) or x.dim() != 2 or x.layout is not torch.strided or not x.numel():
        return False
    if beta.dtype is not x.dtype or beta.device != x.device:
        return False
    return directions_of(x.device) is not None and x.dtype in DTYPES[x.device.type]


class _Directions(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        x_norm, scaled, lengths = directions_of(x.device).directions(x.contiguous(), beta, _LEAST)
        ctx.save_for_backward(x, beta, x_norm, lengths)
        ctx.set_materialize_grads(False)
        return x.view_as(x), x_norm, scaled

    @staticmethod
    @in_types_of_forward
    def backward(ctx, of_rows, of_norm, of_scaled):
        x, beta, x_norm, lengths = ctx.saved_tensors
        of_norm, of_scaled = (torch.zeros_like(x) if grad is None else grad for grad in (of_norm, of_scaled))
        there = [of_norm, of_scaled] if of_rows is None else [of_norm, of_scaled, of_rows]
        if any(map(is_differentiated, there)) or is_watched((x, *there)):
            of_rows = torch.zeros_like(x) if of_rows is None else of_rows
            return tuple(differentiable(_by_torch, (x, beta), (of_rows, of_norm, of_scaled), ctx.needs_input_grad))
        given = [None if grad is None else grad.contiguous() for grad in (of_norm, of_scaled, of_rows)]
        return directions_of(x.device).directions_adjoint(x_norm, beta, _LEAST, lengths, *given)
