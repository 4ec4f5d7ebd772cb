"""Values of a program on all edges as a PyTorch operator, for `torch.compile`; `values_along_edges` runs without one.

Both are a gradient: see there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from pygfuse._lib.modes import changed
from pygfuse.ops.autograd import flags_of, in_order, kept_arguments, needed_names, save_arguments, structured
from pygfuse.ops.binding import needed_of
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import given_of
from pygfuse.ops.plan import call_of
from pygfuse.ops.schema import Arguments, operator, parted
from pygfuse.ops.walks import walk_back
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EdgeProgram


def traced_values_along(
    program: EdgeProgram, factor: str, edges: Edges, operands: Mapping[str, OperandValue], heads: int, channels: int,
    width: int,
) -> Tensor:  # fmt: skip
    """`pygfuse.ops.values_along_edges.values_along` as an operator, which has gradients, but none of these.

    Args:
        program, factor, edges, operands, heads, channels: As there.
        width: How many numbers of an edge there are: `heads`, or `heads` times `channels`.

    Returns:
        ``[edges, width]``, in the user's order.
    """
    arguments = given_of(program, operands).arguments(edges, heads, channels, 'sum', 0.0, None)
    return torch.ops.pygfuse.values_along(*arguments, factor, width)


@operator('values_along', 'str factor, SymInt width', 'Tensor')
def _values_along(*given) -> Tensor:
    arguments, (factor, width) = parted(given)
    stand_in = arguments.tensors[0].new_empty(()).expand(arguments.token.shape[1], width)
    return _gradients(_of_factor(arguments, factor, stand_in), (factor,))[0]


@_values_along.register_fake
def _(*given):
    arguments, (_, width) = parted(given)
    return arguments.tensors[0].new_empty(arguments.token.shape[1], width)


@operator('values_along_backward', 'str factor, Tensor grad, str needed', 'Tensor[]')
def _values_along_backward(*given) -> list[Tensor]:
    arguments, (factor, grad, needed) = parted(given)
    return _gradients(_of_factor(arguments, factor, grad.contiguous()), needed.split(','))


@_values_along_backward.register_fake
def _(*given):
    arguments, (*_, needed) = parted(given)
    by_name = dict(zip(arguments.names.split(','), arguments.tensors, strict=True))
    return [torch.empty_like(by_name[name], memory_format=torch.contiguous_format) for name in needed.split(',')]


def _of_factor(arguments: Arguments, factor: str, values: Tensor) -> Arguments:
    """The arguments of the sum of the values times a factor of each edge."""
    return arguments._replace(names=f'{arguments.names},{factor}', tensors=[*arguments.tensors, values])


def _gradients(arguments: Arguments, names: Collection[str]) -> list[Tensor]:
    """The gradients of the total of what a call gives."""
    call, like = call_of(arguments), arguments.tensors[0]
    ones = like.new_ones(arguments.num_targets, arguments.heads * arguments.channels)
    needed = needed_of(call.bound, flags_of(arguments, names))
    # no row of the ones is zero
    with changed(execution_paths=False, note=None):
        found = walk_back(call, arguments.token, arguments.operands(), ones, like.new_empty(0), ones, needed)
    return in_order(names, found)


def _context(ctx, inputs, output):
    arguments, (factor, _) = parted(inputs)
    save_arguments(ctx, arguments, ())
    ctx.factor = factor


def _backward(ctx, grad):
    arguments, _ = kept_arguments(ctx)
    needed = needed_names(ctx, arguments)
    found = torch.ops.pygfuse.values_along_backward(*arguments, ctx.factor, grad, ','.join(needed)) if needed else ()
    return structured(arguments, dict(zip(needed, found, strict=True)), 2)


_values_along.register_autograd(_backward, setup_context=_context)
